"""Which tasks a supervisor works on: all that its queues hold, or one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ...config import Settings
from ...errors import StoreError
from ...limits import NO_LIMITS, Limits
from ...store import Lease, Store, Turn, Wish
from ...task import Task
from ...watch import Watch
from ...worker_store import WorkerStore
from . import linux
from .intake import HandedIn
from .leased_attempt import Report
from .succession import Tenure

log = logging.getLogger("backburner.supervisor")


class WorkSource(Protocol):
    """Where a supervisor's work comes from. Every verb may raise StoreError."""

    @property
    def slots(self) -> Mapping[str, int]:
        """How many workers each queue gets."""
        ...

    def take_over(self) -> None:
        """Before any claim, and now and then: get back what supervisors that died have left."""
        ...

    def taken(self, queue: str) -> int:
        """How many workers of a queue must rest, since one who has retired still works in their place."""
        ...

    @property
    def takes_in(self) -> bool:
        """Whether others may hand their tasks in here."""
        ...

    def take_turn(
        self, reports: Sequence[Report], handed_in: Sequence[HandedIn], wishes: Sequence[Wish]
    ) -> Turn:
        """Write all of it in one commit, and lease the best tasks that are ready; see `Store.take_turn`."""
        ...

    def ended(self, task_id: str) -> None:
        """An attempt of it is over for its worker, who is free. It is written soon, or not ours any more."""
        ...

    @property
    def is_in_flow(self) -> bool:
        """Whether work comes in so quickly that what ends meanwhile may wait for it, to share its commit."""
        ...

    def is_over(self, idle_ms: int) -> bool:
        """Whether a supervisor that has had nothing to do for so long may leave."""
        ...

    def is_superseded(self) -> bool:
        """Whether another supervisor does this work by now, and this one must leave at once."""
        ...

    def can_retire(self) -> bool:
        """Whether another supervisor may do this work while this one finishes what it has under way."""
        ...

    def retire(self) -> None:
        """Let another one have this work; this one claims no more."""
        ...

    def is_handing_over(self) -> bool:
        """Whether this one has retired, and still waits for the other."""
        ...


class AllQueues:
    """Every task of a store in a queue that has workers by the settings.

    For the one supervisor of this host and store: it holds the lock, in its `tenure`.
    """

    takes_in = True
    is_in_flow = False  # what is handed in says it

    def __init__(self, store: Store, settings: Settings, tenure: Tenure, watch: Watch) -> None:
        """`watch` is by which its supervisor hears: it need not be told what it writes itself."""
        self._tenure = tenure
        self.slots = settings.local_workers
        self._store = store
        self._watch = watch
        self._settings = settings
        self._taken: Counter[str] = Counter()
        self._retired: set[str] | None = None  # those that were there when this one began

    def take_over(self) -> None:
        """End what is left of supervisors that died, and give their tasks back.

        We hold the lock that was theirs. So they have retired and show that they are alive, or they are
        dead for sure, or silent for so long that their runners are.
        """
        if self._retired is not None and not self._retired:
            return
        store = self._store
        others = [worker for worker in store.workers() if self._is_earlier(worker.supervisor_id)]
        alive = {holder.get("supervisor_id") for holder in self._tenure.lock.retired()}
        left = [worker for worker in others if worker.supervisor_id not in alive]
        supervisors = {worker.supervisor_id for worker in left}
        for dead in supervisors:
            if not linux.end_tagged(linux.SUPERVISOR_VARIABLE, dead):
                log.warning("processes of %s cannot be ended", dead)
        store.lose(workers=[worker.worker_id for worker in left])
        for dead in supervisors:
            store.remove_workers(dead)
            self._tenure.lock.forget_retired(dead)
        working = [worker for worker in others if worker.supervisor_id in alive]
        self._retired = {worker.supervisor_id for worker in working}
        self._taken = Counter(worker.queue for worker in working if worker.state == "busy")

    def _is_earlier(self, supervisor_id: str) -> bool:
        """Whether it held this lock before us. Who came later is our successor."""
        if self._retired is not None:
            return supervisor_id in self._retired
        own_id = self._tenure.supervisor_id
        return supervisor_id.startswith(own_id.rpartition("_")[0] + "_") and supervisor_id != own_id

    def taken(self, queue: str) -> int:
        return self._taken[queue]

    def take_turn(
        self, reports: Sequence[Report], handed_in: Sequence[HandedIn], wishes: Sequence[Wish]
    ) -> Turn:
        new = [(one.new, one.queue_cap) for one in handed_in]
        fair = bool(self._settings.fair_share)
        limits = self._settings.limits.of_running
        return self._store.take_turn(reports, new, wishes, fair=fair, limits=limits, watch=self._watch)

    def ended(self, task_id: str) -> None: ...

    def is_over(self, idle_ms: int) -> bool:
        idle_exit_ms = self._settings.supervisor.idle_exit_s * 1000
        if not idle_exit_ms or idle_ms < idle_exit_ms:
            return False
        # A lease on a store of this host may be that of a supervisor that died, which only time tells.
        return not work_is_left(self._store, self._settings, held=not self._store.shared)

    def is_superseded(self) -> bool:
        return self._tenure.is_lost

    def can_retire(self) -> bool:
        # The next one's workers would have the same users as ours, and so reach our tasks.
        return not self._settings.isolation.users

    def retire(self) -> None:
        self._retired = set()  # they are the successor's care
        self._tenure.retire()

    def is_handing_over(self) -> bool:
        return self._tenure.is_handing_over()


class Apart:
    """A source beside the host's supervisor: those that died are left to that, and nobody takes its place."""

    takes_in = False

    @property
    def is_in_flow(self) -> bool:
        return False

    def take_over(self) -> None: ...

    def ended(self, task_id: str) -> None: ...

    def taken(self, queue: str) -> int:
        return 0

    def is_superseded(self) -> bool:
        return False

    def can_retire(self) -> bool:
        return False

    def retire(self) -> None: ...

    def is_handing_over(self) -> bool:
        return False


class OneTask(Apart):
    """One task, claimed once and by one worker."""

    def __init__(
        self, store: WorkerStore, task: Task, limits: Limits = NO_LIMITS, *, target: str = ""
    ) -> None:
        """`target` is the app here, if it is elsewhere than where the task was submitted."""
        self.slots = {task.queue: 1}
        self.lease: Lease | None = None
        self._store = store
        self._task_id = task.task_id
        self._limits = limits
        self._target = target
        self._claimed = False

    def take_turn(
        self, reports: Sequence[Report], handed_in: Sequence[HandedIn], wishes: Sequence[Wish]
    ) -> Turn:
        lost = self._store.report_all(reports) if reports else []
        if wishes and not self._claimed:
            lease = self._store.claim_task(self._task_id, wishes[0].workers[0], self._limits)
            if lease is not None and self._target:
                lease = replace(lease, task=replace(lease.task, target=self._target))
            self.lease = lease
            self._claimed = True
            return Turn(lost, [], [[] if self.lease is None else [self.lease]])
        return Turn(lost, [], [[] for _ in wishes])

    def is_over(self, idle_ms: int) -> bool:
        return self._claimed


def work_is_left(store: Store, settings: Settings, *, held: bool) -> bool:
    """Whether a supervisor with these settings has something to do or tell; also while the store is silent.

    `held` asks for tasks that somebody holds, too: their supervisor may be dead.
    """
    try:
        if settings.webhook.is_used and store.has_deliveries():
            return True
        depths = store.queue_depths()
    except StoreError:
        return True
    # Tasks in a queue outside are handed out, and given back when their workers are lost.
    outside = {name for engine in settings.outside_engines for name in settings.queues_of(engine)}
    return any(
        (depth.queue in settings.local_workers and (depth.queued or (held and depth.leased)))
        or (depth.queue in outside and (depth.queued or depth.leased))
        for depth in depths
    )
