"""Batched writes of a supervisor, and the sources of its work, which commit them: all queues, or one task."""

from __future__ import annotations

import dataclasses
import logging
import selectors
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace

from ....core.limits import NO_LIMITS, Limits
from ....core.reports import Failed
from ....core.task import Task, TaskError
from ....core.times import Clock
from ....errors import StoreError, StoreGone, StoreRefused
from ....observability.logging import about
from ....settings import Settings
from ....store.protocol import BatchResult, ClaimRequest, Lease, Store, Watch, WorkerStore
from ..lock import HeldLock
from ..processes import linux
from ..processes.messages import LeaseDeadline
from ..status import WriteFailures
from ..submission import SubmitRequest
from .attempt import Report
from .background import Watchdog

log = logging.getLogger("backburner.supervisor")

#: How long a report may wait for others, to share a commit with them.
SHARE_COMMIT_MS = 8
_RETRY_MS = 250

Timer = Literal["heartbeat", "check", "claim", "write"]


class Timers:
    """Next time, by the steady clock, of each kind of work. A timer that was due is off until set again."""

    def __init__(self) -> None:
        self._times: dict[Timer, int] = {}

    def set(self, timer: Timer, time: int | None) -> None:
        """Let a timer be due at that time at the latest; None changes nothing."""
        if time is not None:
            known = self._times.get(timer)
            if known is None or time < known:
                self._times[timer] = time

    def due(self, timer: Timer, now: int) -> bool:
        """Return whether its time has come; the timer is off then."""
        time = self._times.get(timer)
        if time is None or now < time:
            return False
        del self._times[timer]
        return True

    def timeout_s(self, now: int) -> float | None:
        """Return the time until the next timer; None when none is set."""
        return max(0, min(self._times.values()) - now) / 1000 if self._times else None


@dataclass(frozen=True, slots=True)
class Shared:
    """Objects shared by all parts of one supervisor."""

    supervisor_id: str
    settings: Settings
    data_dir: Path
    tasks_folder: Path
    clock: Clock
    timers: Timers
    selector: selectors.BaseSelector
    deadline: LeaseDeadline
    watchdog: Watchdog


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that one turn of a supervisor commits: reports, new tasks, and claims for workers."""

    reports: Sequence[Report] = ()
    submissions: Sequence[SubmitRequest] = ()
    claims: Sequence[ClaimRequest] = ()


class BatchWriter:
    """Collects reports and commits them together with the submissions and claims of a turn.

    While the store is away, reports are kept in order. A store that refuses a batch for good (StoreRefused)
    gets its reports one by one; an attempt whose report is refused fails.
    """

    def __init__(self, commit: Callable[[Batch], BatchResult], shared: Shared) -> None:
        """`commit` writes a batch in one commit, or raises StoreError and has written nothing."""
        self._commit = commit
        self._timers = shared.timers
        self._clock = shared.clock
        self._failures = WriteFailures(shared.data_dir, shared.supervisor_id)
        self._reports: list[Report] = []
        self._waiting: list[Callable[[], object]] = []
        self._share_until = 0
        self._retry_at = 0

    @property
    def unwritten(self) -> Sequence[Report]:
        return self._reports

    def add(self, report: Report, then: Callable[[], object] | None = None) -> None:
        """Have a report written soon; at once where `then` waits to be called when it is on disk."""
        self._reports.append(report)
        if then is not None:
            self._waiting.append(then)
        self._timers.set("write", self._share_until if then is None else 0)

    def commit(
        self, submissions: Sequence[SubmitRequest], claims: Sequence[ClaimRequest], *, more_follows: bool
    ) -> BatchResult | None:
        """Commit all reports with these; None when the store failed, and reports are kept for a retry.

        Where `more_follows`, later reports wait a moment to share its commit.
        """
        try:
            result = self._commit_together(Batch(self._reports, submissions, claims))
        except StoreError as error:
            self._timers.set("write", self.store_failed(error))
            return None
        self._failures.clear()
        self._reports = []
        if more_follows:
            self._share_until = self._clock.steady_ms() + SHARE_COMMIT_MS
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
        return result

    def store_failed(self, error: StoreError) -> int:
        """Leave the store alone for a moment; return when to retry. Raises StoreGone, which is final."""
        if isinstance(error, StoreGone):
            raise error
        log.warning("%s", error)
        self._failures.add(error)
        self._retry_at = self._clock.steady_ms() + _RETRY_MS
        return self._retry_at

    def blocked_until(self, now: int) -> int | None:
        """Return when the store may be tried again after a failure; None when it may be now."""
        return self._retry_at if now < self._retry_at else None

    def _commit_together(self, batch: Batch) -> BatchResult:
        try:
            return self._commit(batch)
        except StoreRefused:
            declined = [None for _ in batch.submissions]
            return BatchResult(self._commit_one_by_one(), declined, [])

    def _commit_one_by_one(self) -> list[Lease]:
        """Commit each report alone; return the leases that are lost. Raises when one remains refused."""
        lost: list[Lease] = []
        refused, refusal = [], None
        while self._reports:
            report = self._reports[0]
            try:
                lost += self._commit_alone(report)
            except StoreRefused as error:
                refused.append(report)
                refusal = error
            except StoreError:
                self._reports = refused + self._reports
                raise
            del self._reports[0]
        self._reports = refused
        if refusal is not None:
            raise refusal
        return lost

    def _commit_alone(self, report: Report) -> Sequence[Lease]:
        try:
            return self._commit(Batch([report])).lost
        except StoreRefused as refusal:
            lease, _ = report
            log.warning("%s", refusal, extra=about(lease.task_id, lease.attempt))
            message = f"The store refused what the task had to write: {refusal.details['reason']}."
            self._commit(Batch([(lease, [Failed(TaskError("store_refused", message))])]))
            return [lease]  # over for its runner, too


class WorkSource(ABC):
    """Source of a supervisor's work. Every method may raise StoreError.

    The defaults suit a supervisor beside the host's own, which recovers tasks and hands over.
    """

    #: Number of workers of each queue.
    slots: Mapping[str, int] = MappingProxyType({})
    #: Whether processes of this host may submit tasks through the supervisor.
    accepts_submissions = False

    def recover(self) -> None:  # noqa: B027 (an optional hook)
        """Before the first claim, and regularly: give back the tasks of supervisors that died."""

    def taken(self, queue: str) -> int:
        """Return how many workers of a queue must wait for those of a retired supervisor."""
        return 0

    @abstractmethod
    def commit_batch(self, batch: Batch) -> BatchResult:
        """Write a batch in one commit, and claim the best ready tasks; see `Store.commit_batch`."""

    @abstractmethod
    def is_over(self, idle_ms: int) -> bool:
        """Return whether a supervisor that has been idle for so long may exit."""

    def is_superseded(self) -> bool:
        """Return whether another supervisor has taken over, and this one must exit at once."""
        return False

    def can_retire(self) -> bool:
        """Return whether a successor may start while this supervisor finishes its running tasks."""
        return False

    def retire(self) -> None:  # noqa: B027 (an optional hook)
        """Let a successor have this work."""

    def is_handing_over(self) -> bool:
        """Return whether this supervisor has retired, and its successor has not taken over yet."""
        return False


class AllQueues(WorkSource):
    """All tasks of the store's queues that have local workers. For the supervisor that holds the lock."""

    accepts_submissions = True

    def __init__(self, store: Store, settings: Settings, lock: HeldLock, watch: Watch) -> None:
        """`watch` is the supervisor's own, which its own writes do not notify."""
        self._lock = lock
        self.slots = settings.local_workers
        self._store = store
        self._watch = watch
        self._settings = settings
        self._taken: Counter[str] = Counter()
        self._retired: set[str] | None = None  # supervisors that worked when this one began

    def recover(self) -> None:
        """End the processes of dead supervisors and give their tasks back.

        This supervisor holds the lock that was theirs: each has retired and holds a lock of its own, or is
        dead, or was silent for so long that its runners have ended.
        """
        if self._retired is not None and not self._retired:
            return
        store = self._store
        others = [worker for worker in store.workers() if self._is_earlier(worker.supervisor_id)]
        alive = {holder.get("supervisor_id") for holder in self._lock.lock.retired()}
        left = [worker for worker in others if worker.supervisor_id not in alive]
        supervisors = {worker.supervisor_id for worker in left}
        for dead in supervisors:
            if not linux.end_tagged(linux.SUPERVISOR_VARIABLE, dead):
                log.warning("processes of %s cannot be ended", dead)
        store.lose(workers=[worker.worker_id for worker in left])
        for dead in supervisors:
            store.remove_workers(dead)
            self._lock.lock.forget_retired(dead)
        working = [worker for worker in others if worker.supervisor_id in alive]
        self._retired = {worker.supervisor_id for worker in working}
        self._taken = Counter(worker.queue for worker in working if worker.state == "busy")

    def _is_earlier(self, supervisor_id: str) -> bool:
        """Return whether it held this lock before us; later ones are successors."""
        if self._retired is not None:
            return supervisor_id in self._retired
        own_id = self._lock.supervisor_id
        return supervisor_id.startswith(own_id.rpartition("_")[0] + "_") and supervisor_id != own_id

    def taken(self, queue: str) -> int:
        return self._taken[queue]

    def commit_batch(self, batch: Batch) -> BatchResult:
        return self._store.commit_batch(
            batch.reports,
            [(one.new, one.queue_cap) for one in batch.submissions],
            batch.claims,
            fair=bool(self._settings.fair_share),
            limits=self._settings.limits.of_running,
            watch=self._watch,
        )

    def is_over(self, idle_ms: int) -> bool:
        idle_exit_ms = self._settings.supervisor.idle_exit_s * 1000
        if not idle_exit_ms or idle_ms < idle_exit_ms:
            return False
        # A lease on a store of this host may belong to a supervisor that died.
        return not work_is_left(self._store, self._settings, held=not self._store.shared)

    def is_superseded(self) -> bool:
        return self._lock.is_lost

    def can_retire(self) -> bool:
        # The next one's workers would have the same users as ours, and so reach our tasks.
        return not self._settings.isolation.users

    def retire(self) -> None:
        self._retired = set()  # the successor recovers from now on
        self._lock.retire()

    def is_handing_over(self) -> bool:
        return self._lock.is_handing_over()


class OneTask(WorkSource):
    """One task, claimed once."""

    def __init__(
        self, store: WorkerStore, task: Task, limits: Limits = NO_LIMITS, *, target: str = ""
    ) -> None:
        """`target` is the app on this host, if it differs from that of the task."""
        self.slots = {task.queue: 1}
        self.lease: Lease | None = None
        self._store = store
        self._task_id = task.task_id
        self._limits = limits
        self._target = target
        self._claimed = False

    def commit_batch(self, batch: Batch) -> BatchResult:
        lost = self._store.report_all(batch.reports) if batch.reports else []
        if self._claimed or not batch.claims:
            return BatchResult(lost, [], [[] for _ in batch.claims])
        lease = self._store.claim_task(self._task_id, batch.claims[0].workers[0], self._limits)
        if lease is not None and self._target:
            lease = dataclasses.replace(lease, task=replace(lease.task, target=self._target))
        self.lease, self._claimed = lease, True
        return BatchResult(lost, [], [[] if lease is None else [lease]])

    def is_over(self, idle_ms: int) -> bool:
        return self._claimed


def work_is_left(store: Store, settings: Settings, *, held: bool) -> bool:
    """Return whether a supervisor with these settings has work; True also while the store is away.

    `held` includes leased tasks: their supervisor may be dead.
    """
    try:
        if settings.webhook.is_used and store.has_deliveries():
            return True
        depths = store.queue_depths()
    except StoreError:
        return True
    # Tasks of an external queue are dispatched, and given back when their workers are lost.
    outside = {name for engine in settings.outside_engines for name in settings.queues_of(engine)}
    return any(
        (depth.queue in settings.local_workers and (depth.queued or (held and depth.leased)))
        or (depth.queue in outside and (depth.queued or depth.leased))
        for depth in depths
    )
