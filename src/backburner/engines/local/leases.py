"""Keeping leases alive, and hearing what others want of the tasks."""

from __future__ import annotations

import time
from collections.abc import Collection

from ...config import Settings
from ...errors import StoreError, TaskNotFound
from ...lifecycle import State
from ...store import ANYTHING, Store
from .leased_attempt import LeasedAttempt, Report
from .oversight import Oversight
from .store_outage import StoreOutage
from .timers import Timers
from .workers import Workers, WorkerSlot
from .write_batch import WriteBatch


class Leases:
    """What the store says of the tasks that our workers hold: cancelled, answered, or no longer ours."""

    def __init__(
        self,
        store: Store,
        workers: Workers,
        oversight: Oversight,
        batch: WriteBatch[Report],
        timers: Timers,
        outage: StoreOutage,
        settings: Settings,
    ) -> None:
        self._store = store
        self._workers = workers
        self._oversight = oversight
        self._batch = batch
        self._timers = timers
        self._outage = outage
        self._heartbeat_ms = int(settings.supervisor.heartbeat_s * 1000)
        self._arrived_at = float("-inf")

    def heartbeat(self, now: int) -> None:
        """Say that the workers are alive, and learn what became of their tasks."""
        self._timers.soon("heartbeat", now + self._heartbeat_ms)
        held = self._workers.attempts()
        # An attempt that is over is ours until its outcome is written: else it could count as lost before.
        leases = [attempt.lease for _, attempt in held] + [lease for lease, _ in self._batch.unwritten]
        try:
            views = self._store.heartbeat(leases, self._workers.records(now))
        except StoreError as error:
            self._outage.begin(error)
            return
        self._arrived_at = time.monotonic()
        for (worker, attempt), view in zip(held, views, strict=False):
            if not view.held:
                self._oversight.lose(attempt.lease)
            elif view.state is State.CANCEL_REQUESTED:
                self._oversight.cancel(worker, attempt, now)
        self._timers.soon("claim", now)  # in case a doorbell was not heard

    def heartbeat_age_s(self) -> float:
        """How long ago the last heartbeat arrived. Safe to call from any thread."""
        return time.monotonic() - self._arrived_at

    def heard(self, topics: Collection[str], now: int) -> None:
        """The store says that something has changed."""
        for worker, attempt in self._workers.attempts():
            if ANYTHING in topics or f"steer:{attempt.lease.task_id}" in topics:
                self._see_what_is_wanted(worker, attempt, now)

    def _see_what_is_wanted(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        """Somebody may have cancelled the task, or answered its questions."""
        try:
            if self._store.head(attempt.lease.task_id).state is State.CANCEL_REQUESTED:
                self._oversight.cancel(worker, attempt, now)
            if attempt.asked:
                self._bring_answers(worker, attempt)
        except (StoreError, TaskNotFound):
            self._timers.soon("heartbeat", now)  # that tells what became of it

    def _bring_answers(self, worker: WorkerSlot, attempt: LeasedAttempt) -> None:
        answered = {
            request.key: {"action": request.action, "content": request.content}
            for request in self._store.input_requests(attempt.lease.task_id)
            if request.answered_at is not None
        }
        for number, keys in list(attempt.asked.items()):
            if all(key in answered for key in keys) and worker.runner is not None:
                del attempt.asked[number]
                worker.runner.tell("reply", {"number": number, "value": {key: answered[key] for key in keys}})
