"""What the engines on a message broker have in common: levels of priority, and jobs known by their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...config import without_password
from ...config.engines.broker import BrokerSettings
from ...errors import EngineError
from ...hand_out import HandOut
from .queue import Sighting

#: The highest level of priority; the lowest is 0. Brokers keep few apart, since each costs them a list.
TOP_LEVEL = 9
#: The level of a task whose caller said nothing of its priority.
_USUAL_LEVEL = 4

#: How long a broker has to answer.
ANSWER_S = 5.0


def level(priority: int) -> int:
    """The level of a task's priority: from -4 to 5 each has its own, and what is beyond has the nearest."""
    return min(TOP_LEVEL, max(0, priority + _USUAL_LEVEL))


def seen_by_number(handed_out: Sequence[HandOut], waiting: Callable[[str], int]) -> dict[str, Sighting]:
    """What is known of jobs on a broker that cannot be asked about one, but says how many wait in a queue.

    Where as many messages wait as tasks do, theirs are taken to be among them. If some are of others, that is
    seen when workers have come so far. By how many fewer wait, so many were lost, or are in workers' hands:
    those that were handed out first, since what was lost was there before what waits now.
    """
    waits = sorted((one for one in handed_out if one.waits), key=lambda one: one.handed_at)
    missing = {queue: tasks - waiting(queue) for queue, tasks in Counter(one.queue for one in waits).items()}
    seen = {}
    for one in waits:
        seen[one.task_id] = Sighting("lost" if missing[one.queue] > 0 else "there")
        missing[one.queue] -= 1
    return seen


@contextmanager
def answering(settings: BrokerSettings, trouble: tuple[type[Exception], ...]) -> Iterator[None]:
    """What goes wrong with a broker here, as an EngineError that says what to do about it."""
    try:
        yield
    except trouble as error:
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        reason = f"the broker {without_password(settings.url)} {_advice(settings.group, said)} ({said})"
        raise EngineError(engine=settings.group, reason=reason) from error


def _advice(group: str, said: str) -> str:
    words = said.lower()
    if any(word in words for word in ("auth", "access", "login", "noperm", "notallowed")):
        return f"does not let us in; give {group}.url a user and a password that it knows"
    if "precondition" in words:
        return f"has a queue of that name that was made otherwise; remove it, or set {group}.namespace"
    return f"cannot be reached now; start it, or set {group}.url"
