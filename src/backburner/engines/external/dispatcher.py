"""External queues, and the dispatcher of tasks to them (docs/decisions/0032)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any, Literal, Protocol

from ...core import json_text
from ...core.lifecycle import TERMINAL, State
from ...core.reports import Failed, Logged
from ...core.task import LogLine, Task, TaskError
from ...errors import EngineError
from ...observability.logging import about
from ...settings import Settings
from ...store.protocol import ExternalJob, Store
from ..local.supervisor.background import Repeated

log = logging.getLogger("backburner.engine")

#: The most tasks that are given to a queue at once.
_BATCH = 200
#: When a queue gets tasks again that it refused.
_RETRY_MS = 2000
#: A job that has not begun after the first is looked at; an unknown one is replaced after the second.
_CHECK_AFTER_MS, _REPLACE_AFTER_MS = 5000, 60_000
#: A task fails after so many jobs that ended without beginning it.
_MAX_ENDED = 3
#: How often a supervisor runs a round.
_ROUND_S = 1.0

#: Returns the secret of the store, which signs tokens for workers; raises StoreError.
Secret = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job in an external queue.

    - `active`: it waits or runs.
    - `ending`: the queue will soon know how it ended.
    - `ended` without beginning its task. After a few of these the task fails, with `output` in its log.
    - `cancelled` or `failed`, with an error `code`, by the queue: so ends its task.
    - `lost`: it is replaced at once; `unknown`: after a minute.
    """

    state: Literal["active", "ending", "ended", "cancelled", "failed", "lost", "unknown"]
    reason: str = ""
    code: str = ""
    output: str = ""


_UNKNOWN = JobStatus("unknown")


class PartialSubmit(EngineError):
    """The engine {engine} could not do it: {reason}."""

    def __init__(
        self, jobs: Mapping[str, str], error: EngineError, reasons: Mapping[str, str] | None = None
    ) -> None:
        """`jobs` are those of the tasks that were submitted. `reasons` has the errors of single tasks."""
        super().__init__(**error.details)
        self.jobs = jobs
        self.reasons = reasons or {}


class ExternalQueue(Protocol):
    """The queues of an engine. Every call may raise EngineError; then it is repeated later."""

    name: str

    def submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """Submit tasks of one queue of ours; return the job of each by its id, or "" for one without a name.

        Raises PartialSubmit where some of them were submitted.
        """
        ...

    def status(self, jobs: Sequence[ExternalJob]) -> Mapping[str, JobStatus]:
        """Return the status of jobs by the ids of their tasks; a missing one is unknown."""
        ...

    def cancel(self, jobs: Sequence[ExternalJob]) -> None:
        """Cancel the jobs of tasks that have ended. Harmless for a job that is over."""
        ...

    def close(self) -> None: ...


class Dispatcher:
    """Gives the tasks of one engine to its queue. Of several processes that do so, one gets each task."""

    def __init__(self, store: Store, external: ExternalQueue, queues: Sequence[str]) -> None:
        self._store = store
        self._external = external
        self._queues = queues

    def dispatch(self, task_ids: Sequence[str] | None = None, but_not: Collection[str] = ()) -> int:
        """Submit what is ready and has no job, or only these tasks; return how many. Raises StoreError."""
        begun = self._store.begin_hand_out(
            self._external.name, self._queues, task_ids=task_ids, but_not=but_not, limit=_BATCH
        )
        self.submit(begun)
        return len(begun)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Submit tasks that are recorded as dispatched already. Raises StoreError."""
        for _, group in groupby(sorted(tasks, key=lambda task: task.queue), key=lambda task: task.queue):
            alike = list(group)
            try:
                jobs = self._external.submit(alike)
            except EngineError as error:
                jobs = error.jobs if isinstance(error, PartialSubmit) else {}
                self._retry_later([task.task_id for task in alike if task.task_id not in jobs], error)
            # A job without a name needs no write, unless its task says that it waits.
            waited = any(task.waits_for is not None for task in alike)
            if any(jobs.values()) or (jobs and waited):
                self._store.handed_out(jobs)

    def run_round(self) -> None:
        """Reconcile the jobs, and submit what is ready. Raises EngineError and StoreError."""
        jobs = self._store.hand_outs(self._external.name)
        undecided = {job.task_id for job in jobs if job.came_back and job.job}
        try:
            self._release([job for job in jobs if job.state in TERMINAL])
            undecided = self._reconcile([job for job in jobs if job.waits or job.task_id in undecided])
        finally:
            while self.dispatch(but_not=undecided) == _BATCH:
                pass

    def close(self) -> None:
        self._external.close()

    def _retry_later(self, task_ids: Sequence[str], error: EngineError) -> None:
        reasons = error.reasons if isinstance(error, PartialSubmit) else {}
        by_reason: dict[str, list[str]] = {}
        for task_id in task_ids:
            by_reason.setdefault(reasons.get(task_id, str(error)), []).append(task_id)
        for reason, refused in by_reason.items():
            log.warning("%d tasks wait: %s", len(refused), reason)
            self._store.not_handed_out(refused, reason, _RETRY_MS)

    def _release(self, ended: Sequence[ExternalJob]) -> None:
        """Forget the jobs of tasks that have ended, and cancel those that may still be there."""
        if left := [job for job in ended if job.state is not State.SUCCEEDED]:
            self._external.cancel(left)
        if ended:
            self._store.take_back([job.task_id for job in ended])

    def _reconcile(self, waiting: Sequence[ExternalJob]) -> set[str]:
        """Act on the status of jobs; return the tasks that must not be submitted again yet."""
        now = self._store.now_ms()
        due = [job for job in waiting if job.came_back or now - job.handed_at >= _CHECK_AFTER_MS]
        known = self._external.status(waiting) if due else {}
        found = [(job, known.get(job.task_id, _UNKNOWN)) for job in due]
        for job, status in found:
            self._settle(job, status, now)
        return {job.task_id for job, status in found if status.state == "ending"}

    def _settle(self, job: ExternalJob, status: JobStatus, now: int) -> None:
        if status.state == "cancelled":
            self._store.cancel(job.task_id, reason=status.reason)
        elif status.state == "failed":
            self._fail(job, status, TaskError(status.code, status.reason))
        elif job.came_back:
            pass  # that attempt is over, however its job ended
        elif status.state == "ended" and job.ended + 1 >= _MAX_ENDED:
            message = (
                f"{_MAX_ENDED} jobs of {job.engine} ended without starting the task."
                f" The last one said: {status.reason}"
            )
            self._fail(job, status, TaskError("job_ended", message))
        elif status.state == "ended":
            text = "job %s of %s ended without starting it: %s"
            log.warning(text, job.job, job.task_id, status.reason, extra=about(job.task_id))
            self._store.take_back([job.task_id], ended=True)
        elif status.state == "lost" or (
            status.state == "unknown" and now - job.handed_at >= _REPLACE_AFTER_MS
        ):
            self._store.take_back([job.task_id])

    def _fail(self, job: ExternalJob, status: JobStatus, error: TaskError) -> None:
        """Fail a task in the place of a worker."""
        lease = self._store.claim_task(job.task_id, f"{job.engine}:{job.job}", None)
        if lease is not None:
            now = self._store.now_ms()
            lines = tuple(
                LogLine(lease.last_log_seq + n, now, "job", "info", json_text.storable(line))
                for n, line in enumerate(status.output.splitlines(), 1)
            )
            self._store.report(lease, Logged(lines), Failed(error))


def load_engine(name: str) -> Any:
    """Import the package of an engine: it has `make_queue(settings, queues, secret)`.

    Where workers must be started, it has `work(settings, data_dir, target)`, which replaces this process by a
    worker. Raises EngineError where its library is missing.
    """
    try:
        return import_module(f"..{name.replace('-', '_')}", __package__)
    except ImportError as error:
        extra = name.removesuffix("-batch")
        reason = f"{error}; install it: pip install 'backburner[{extra}]'"
        raise EngineError(engine=name, reason=reason) from error


def make_dispatcher(engine: str, settings: Settings, store: Store) -> Dispatcher:
    """Raises EngineError."""
    queues = settings.queues_of(engine)
    return Dispatcher(store, load_engine(engine).make_queue(settings, queues, store.secret), queues)


class DispatchLoop:
    """Runs the rounds of a supervisor. Of several supervisors on a store, its keeper runs them."""

    def __init__(self, store: Store, settings: Settings, holder: str) -> None:
        self._store = store
        self._settings = settings
        self._holder = holder
        self._dispatchers: dict[str, Dispatcher] = {}

    def as_background(self) -> Iterator[Repeated]:
        """Yield a thread for each engine, so that one which does not answer delays no other."""
        for engine in self._settings.outside_engines:
            yield Repeated(f"dispatch-{engine}", partial(self._run_round, engine), pause_s=_ROUND_S)

    def _run_round(self, engine: str) -> None:
        if engine not in self._dispatchers:
            self._dispatchers[engine] = make_dispatcher(engine, self._settings, self._store)
        lease_s = 3 * self._settings.supervisor.keeper_interval_s
        if self._store.keep(self._holder, lease_s=lease_s):
            self._dispatchers[engine].run_round()
