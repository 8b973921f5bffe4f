"""External queues: their dispatcher, and the engine of a server that uses them (docs/decisions/0032)."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from ..core import json_text
from ..core.lifecycle import TERMINAL, State
from ..core.reports import Failed, Logged
from ..core.task import LogLine, NewTask, Submission, Task, TaskError
from ..errors import BackburnerError, EngineError
from ..observability.logging import about
from ..settings import Settings
from ..store.protocol import ExternalJob, Store
from .local.supervisor.background import Repeated
from .protocol import Engine

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
        return import_module(f".{name.replace('-', '_')}", __package__)
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


#: How long a server that stops waits for a dispatch under way; the supervisor does the rest.
_STOP_S = 2.0


class ExternalEngine:
    """Dispatches the tasks of external queues, and leaves the others to the local engine.

    The local engine also starts the supervisor, which reconciles jobs when no server is left.
    """

    name = "outside"

    def __init__(self, local: Engine, settings: Settings, store: Store) -> None:
        self._local = local
        self._settings = settings
        self._store = store
        self._waiting: list[Task] = []
        self._recorded: set[str] = set()  # those whose dispatch is in the commit that stored them
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._local.start()

    def submit(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._is_external(new.queue):
            return self._local.submit(new, queue_cap)
        # No local worker waits for it, so this thread writes it itself.
        return self._stored(self._store.submit(self._as_dispatched(new), queue_cap=queue_cap))

    async def submit_async(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        if not self._is_external(new.queue):
            return await self._local.submit_async(new, queue_cap)
        submission = await self._local.submit_async(self._as_dispatched(new), queue_cap)
        return None if submission is None else self._stored(submission)

    def _as_dispatched(self, new: NewTask) -> NewTask:
        """Record the dispatch in the commit that stores the task, which saves another one."""
        return replace(new, handed_to=self._settings.engine_of(new.queue))

    def _stored(self, submission: Submission) -> Submission:
        if submission.created:
            self._recorded.add(submission.task.task_id)
        return submission

    def _is_external(self, queue: str) -> bool:
        return self._settings.engine_of(queue) in self._settings.outside_engines

    def notify(self, task: Task) -> None:
        if self._is_external(task.queue):
            with self._lock:
                self._waiting.append(task)
                if self._thread is None and not self._stopping:
                    name = "backburner-dispatch"
                    self._thread = threading.Thread(target=self._dispatch_all, name=name, daemon=True)
                    self._thread.start()
            self._wake.set()
        self._local.notify(task)

    def stop(self) -> None:
        with self._lock:
            self._stopping, thread = True, self._thread
        self._wake.set()
        if thread is not None:
            thread.join(_STOP_S)
        self._local.stop()

    def _dispatch_all(self) -> None:
        """Dispatch new tasks in batches. The supervisor repeats what fails here."""
        dispatchers: dict[str, Dispatcher] = {}
        stopping = False
        while not stopping:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, []
                stopping = self._stopping
            try:
                for engine in self._settings.outside_engines:
                    own = [task for task in waiting if self._settings.engine_of(task.queue) == engine]
                    if own:
                        if engine not in dispatchers:
                            dispatchers[engine] = make_dispatcher(engine, self._settings, self._store)
                        self._dispatch(dispatchers[engine], own)
            except (BackburnerError, OSError) as error:
                log.warning("%d tasks are stored, and dispatched later: %s", len(waiting), error)
                with contextlib.suppress(BackburnerError, OSError):
                    self._store.take_back([task.task_id for task in waiting])
            self._recorded.difference_update(task.task_id for task in waiting)
        for dispatcher in dispatchers.values():
            dispatcher.close()

    def _dispatch(self, dispatcher: Dispatcher, tasks: list[Task]) -> None:
        dispatcher.submit([task for task in tasks if task.task_id in self._recorded])
        if others := [task.task_id for task in tasks if task.task_id not in self._recorded]:
            dispatcher.dispatch(others)
