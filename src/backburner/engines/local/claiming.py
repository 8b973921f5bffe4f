"""Leasing tasks for workers that have room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from ...config import Settings
from ...reports import HandedBack
from ...store import Turn, Wish
from ...watch import ANYTHING
from .dispatch import Dispatch
from .leased_attempt import LeasedAttempt
from .pace import AHEAD_WAITS_MS, Pace
from .task_log import TaskLog
from .timers import Timers
from .work_source import WorkSource
from .worker_slot import WorkerSlot
from .workers import Workers

#: So many tasks are leased with one commit.
_MOST_AT_ONCE = 128


class Claiming:
    """Knows in which queues there may be tasks, and leases them for workers that are free.

    Where tasks are quick, workers lease ahead (docs/decisions/0005).
    """

    def __init__(
        self,
        source: WorkSource,
        workers: Workers,
        dispatch: Dispatch,
        timers: Timers,
        pace: Pace,
        settings: Settings,
    ) -> None:
        self._source = source
        self._workers = workers
        self._dispatch = dispatch
        self._timers = timers
        self._pace = pace
        self._max_log_bytes = settings.limits.max_log_bytes
        self._queues = set(source.slots)
        self._by_id = {worker.worker_id: worker for worker in workers}
        self._by_queue = {queue: [one for one in workers if one.queue == queue] for queue in self._queues}
        self._claimable = set(self._queues)
        self._deep: set[str] = set()  # where the last claim found as many tasks as it asked for

    def heard(self, topics: Collection[str]) -> None:
        """The store says that there is something new."""
        for queue in self._queues:
            if ANYTHING in topics or f"queue:{queue}" in topics:
                self._claimable.add(queue)

    def handed_in(self, queues: Iterable[str]) -> None:
        """There are tasks in these queues with the next turn."""
        self._claimable |= self._queues.intersection(queues)

    def stop(self) -> None:
        """Claim no more."""
        self._queues.clear()
        self._claimable.clear()

    @property
    def can_go_on(self) -> bool:
        """Whether there may be tasks for free workers: a turn may have queued some after its own claims."""
        return any(not worker.load for queue in self._claimable for worker in self._free_of_others(queue))

    def _free_of_others(self, queue: str) -> list[WorkerSlot]:
        """The workers of a queue, but for as many as others have taken."""
        return self._by_queue[queue][self._source.taken(queue) :]

    def wishes(self, now: int) -> list[Wish]:
        """For which workers there should be tasks: those that have room, where there may be any.

        A worker is named once for each task that it has room for, and those that are free come first:
        they get the best tasks.
        """
        if self._timers.due("claim", now):
            self._claimable |= self._queues
        wishes = []
        for queue in self._claimable:
            room = self._pace.room(queue)
            most = room // 2 if queue in self._deep else 0  # a task or two are not worth leasing ahead
            ours = self._free_of_others(queue)
            wanting = [(load, worker.worker_id) for worker in ours if (load := worker.load) <= most]
            if wanting:
                names = (name for place in range(room) for load, name in wanting if load <= place)
                wishes.append(Wish(queue, list(islice(names, _MOST_AT_ONCE))))
        return wishes

    def granted(self, wishes: Sequence[Wish], turn: Turn, now: int) -> None:
        """Let the workers begin with what was leased for them."""
        for wish, leases in zip(wishes, turn.leases, strict=True):
            for lease in leases:
                worker = self._by_id[lease.worker_id]
                worker.backlog.append(LeasedAttempt(lease, TaskLog(lease.last_log_seq, self._max_log_bytes)))
            for name in dict.fromkeys(lease.worker_id for lease in leases):
                self._dispatch.begin_next(self._by_id[name])
                if self._by_id[name].backlog:
                    self._timers.soon("look", now + AHEAD_WAITS_MS)
            if len(leases) == len(wish.workers):
                self._deep.add(wish.queue)
            else:
                self._deep.discard(wish.queue)
                self._claimable.discard(wish.queue)
        if turn.ready_in_ms is not None:
            self._timers.soon("claim", now + turn.ready_in_ms)

    def let_others_have(self, now: int) -> None:
        """Hand back what was leased ahead and now waits behind a task that turns out to be slow."""
        for worker in self._workers:
            running = worker.attempt
            if not worker.backlog or running is None or running.sent_at is None:
                continue
            if now - running.sent_at < AHEAD_WAITS_MS:
                self._timers.soon("look", running.sent_at + AHEAD_WAITS_MS)
                continue
            self._pace.measured(worker.queue, now - running.sent_at)
            for attempt in list(worker.backlog):
                reason = "Its worker is busy for longer than expected."
                self._dispatch.finish(worker, attempt, HandedBack(reason))
