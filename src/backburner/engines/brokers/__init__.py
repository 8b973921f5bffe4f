"""Shared by the engines on a message broker: broker errors and message counts.

A message carries no task: it rings a bell. The worker that gets it claims the best ready tasks of its queue
(docs/decisions/0033).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...errors import EngineError
from ...settings import without_password
from ...settings.engines import BrokerSettings
from ...store.protocol import ExternalJob
from ..external import JobStatus

#: Timeout of each request to a broker.
ANSWER_S = 5.0


def compare_counts(jobs: Sequence[ExternalJob], waiting: Callable[[str], int]) -> dict[str, JobStatus]:
    """Return the status of jobs on a broker that can only say how many messages wait in a queue.

    Where fewer messages than tasks wait, the difference is lost, or held by workers. The tasks that were sent
    first count as lost, since a message that was lost had been there before those that wait now.
    """
    waits = sorted((job for job in jobs if job.waits), key=lambda job: job.handed_at)
    missing = {queue: tasks - waiting(queue) for queue, tasks in Counter(job.queue for job in waits).items()}
    seen = {}
    for job in waits:
        seen[job.task_id] = JobStatus("lost" if missing[job.queue] > 0 else "active")
        missing[job.queue] -= 1
    return seen


@contextmanager
def broker_errors(
    engine: str, settings: BrokerSettings, kinds: tuple[type[Exception], ...]
) -> Iterator[None]:
    """Raise the library's errors as an EngineError that says what to do."""
    try:
        yield
    except kinds as error:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        reason = f"the broker {without_password(settings.url)} {_advice(text)} ({text})"
        raise EngineError(engine=engine, reason=reason) from error


def _advice(text: str) -> str:
    words = text.lower()
    if any(word in words for word in ("auth", "access", "login", "noperm", "notallowed")):
        return "refuses the login; give broker.url a user and a password that it knows"
    if "precondition" in words:
        return "has a queue of that name with other options; delete it, or set broker.namespace"
    return "cannot be reached now; start it, or set broker.url"
