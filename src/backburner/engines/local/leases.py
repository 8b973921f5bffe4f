"""Keeping leases alive, and hearing what others want of the tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from ...clock import Clock
from ...config import Settings
from ...errors import StoreBusy, StoreError, TaskNotFound
from ...lifecycle import State
from ...watch import ANYTHING
from ...worker_store import WorkerStore
from .hold import Hold
from .leased_attempt import LeasedAttempt, Report
from .oversight import Oversight
from .store_outage import StoreOutage
from .timers import Timers
from .worker_slot import WorkerSlot
from .workers import Workers
from .write_batch import WriteBatch

_ANSWER_AGAIN_MS = 500


class Leases:
    """What the store says of the tasks that our workers hold: cancelled, answered, or no longer ours."""

    def __init__(
        self,
        store: WorkerStore,
        workers: Workers,
        oversight: Oversight,
        batch: WriteBatch[Report],
        timers: Timers,
        outage: StoreOutage,
        hold: Hold,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._store = store
        self._workers = workers
        self._oversight = oversight
        self._batch = batch
        self._timers = timers
        self._outage = outage
        self._hold = hold
        self._clock = clock
        self._heartbeat_ms = int(settings.supervisor.heartbeat_s * 1000)
        self._grace_ms = int(settings.supervisor.lease_grace_s * 1000)

    def heartbeat(self, now: int) -> None:
        """Say that the workers are alive, and learn what became of their tasks. It renews the hold."""
        self._timers.soon("heartbeat", now + self._heartbeat_ms)
        held = self._workers.attempts()
        # An attempt that is over is ours until its outcome is written: else it could count as lost before.
        leases = [attempt.lease for _, attempt in held] + [lease for lease, _ in self._batch.unwritten]
        sent_at = self._hold.now_ms()
        try:
            views = self._store.heartbeat(leases, self._workers.roster.news())
        except StoreError as error:
            # Who holds a lock of this host's store keeps every other process from taking our tasks.
            if isinstance(error, StoreBusy) and not self._store.shared and sent_at < self._hold.until:
                self._renew_hold(sent_at)
            self._timers.soon("heartbeat", self._outage.begin(error))
            return
        self._renew_hold(sent_at)
        for (worker, attempt), view in zip(held, views, strict=False):
            if not view.held:
                self._oversight.lose(attempt.lease)
            elif view.state is State.CANCEL_REQUESTED:
                self._oversight.cancel(worker, attempt, now)
            elif attempt.asked:  # here and below: in case a doorbell was not heard
                self._see_what_is_wanted(worker, attempt, now)
        self._timers.soon("claim", now)

    def _renew_hold(self, sent_at: int) -> None:
        self._hold.until = sent_at + self._grace_ms
        self._workers.tell_hold()

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
        for number, asked in list(attempt.asked.items()):
            if not all(key in answered for key in asked.keys):
                continue
            at_work = self._workers.parking.unpark(worker) if worker.parked else worker
            attempt.has_answers = at_work is None
            if at_work is None:
                return
            worker = at_work
            if worker.runner is not None:
                del attempt.asked[number]
                attempt.waits_since = self._clock.steady_ms()
                answers = {key: answered[key] for key in asked.keys}
                worker.runner.tell("reply", {"number": number, "value": answers})

    def let_go_on(self, now: int) -> None:
        """Tasks that were parked and have their answers come before those that have not begun."""
        parking = self._workers.parking
        for parked in list(parking.tasks()):
            attempt = parked.attempt
            if attempt is not None and attempt.has_answers and parking.free_worker(parked.queue) is not None:
                self._see_what_is_wanted(parked, attempt, now)

    def answer_for_nobody(self, now: int) -> None:
        """Give the answers that hold when nobody has answered in time."""
        for worker, attempt in self._workers.attempts():
            if not attempt.asked or attempt.stopping is not None or attempt.has_answers:
                continue
            limited = [(one.until, one) for one in attempt.asked.values() if one.until is not None]
            for until, asked in limited:
                # It is tried again, since the question may not be written yet.
                self._timers.soon("look", until if until > now else now + _ANSWER_AGAIN_MS)
                if until <= now:
                    with contextlib.suppress(StoreError, TaskNotFound):
                        self._store.answer(attempt.lease.task_id, asked.otherwise)
            if any(until <= now for until, _ in limited):
                self._see_what_is_wanted(worker, attempt, now)
