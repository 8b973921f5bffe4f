"""Leasing tasks for workers that have room."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from ...config import Settings
from ...errors import StoreError
from ...reports import HandedBack
from ...store import ANYTHING
from .dispatch import Dispatch
from .leased_attempt import LeasedAttempt
from .pace import AHEAD_WAITS_MS, Pace
from .store_outage import StoreOutage
from .task_log import TaskLog
from .timers import Timers
from .work_source import WorkSource
from .worker_slot import WorkerSlot
from .workers import Workers


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
        outage: StoreOutage,
        settings: Settings,
    ) -> None:
        self._source = source
        self._workers = workers
        self._dispatch = dispatch
        self._timers = timers
        self._pace = pace
        self._outage = outage
        self._max_log_bytes = settings.limits.max_log_bytes
        self._queues = set(source.slots)
        self._claimable = set(self._queues)
        self._deep: set[str] = set()  # where the last claim found as many tasks as it asked for

    def heard(self, topics: Collection[str]) -> None:
        """The store says that there is something new."""
        for queue in self._queues:
            if ANYTHING in topics or f"queue:{queue}" in topics:
                self._claimable.add(queue)

    def stop(self) -> None:
        """Claim no more."""
        self._queues.clear()
        self._claimable.clear()

    def claim(self, now: int) -> None:
        """Lease for every worker that has room, and let it begin."""
        if self._timers.due("claim", now):
            self._claimable |= self._queues
        back_at = self._outage.until(now)
        if back_at is not None:
            self._timers.soon("claim", back_at)
            return
        for queue in list(self._claimable):
            room = self._pace.room(queue)
            most = room // 2 if queue in self._deep else 0  # a task or two are not worth leasing ahead
            ours = [worker for worker in self._workers if worker.queue == queue]
            wanting = [worker for worker in ours[self._source.taken(queue) :] if worker.load <= most]
            if wanting:
                self._claim(queue, wanting, room, now)

    def _claim(self, queue: str, wanting: list[WorkerSlot], room: int, now: int) -> None:
        """The best tasks go to the workers that are free; what there is for them besides comes after."""
        by_id = {worker.worker_id: worker for worker in wanting}
        names = [name for place in range(room) for name, worker in by_id.items() if worker.load <= place]
        try:
            leases = self._source.claim(queue, names)
        except StoreError as error:
            self._timers.soon("claim", self._outage.begin(error))
            return
        for lease in leases:
            attempt = LeasedAttempt(lease, TaskLog(lease.last_log_seq, self._max_log_bytes))
            by_id[lease.worker_id].backlog.append(attempt)
        for worker in wanting:
            self._dispatch.begin_next(worker)
            if worker.backlog:
                self._timers.soon("look", now + AHEAD_WAITS_MS)
        if len(leases) == len(names):
            self._deep.add(queue)
        else:
            self._deep.discard(queue)
            self._claimable.discard(queue)
            with contextlib.suppress(StoreError):
                ready_in_ms = self._source.ready_in_ms()
                self._timers.soon("claim", None if ready_in_ms is None else now + ready_in_ms)

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
