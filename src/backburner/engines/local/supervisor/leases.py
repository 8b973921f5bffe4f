"""Leased attempts: heartbeats, cancels, answers, limits, and the supervisor's own drain."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Collection

from ....core.lifecycle import State
from ....core.reports import Stopping
from ....core.task import TaskError
from ....errors import StoreBusy, StoreError, TaskNotFound
from ....store.protocol import ANYTHING, Lease, WorkerStore
from .attempt import ASK_GRACE_S, CANCELLED, HANDED_BACK, LEASE_LOST, TIMED_OUT, LeasedAttempt
from .batch import BatchWriter, Shared
from .dispatch import Dispatch
from .workers import CHECK_RUNNER_MS, Workers, WorkerSlot

_ANSWER_AGAIN_MS = 500
_KILL_AGAIN_MS = 1000


class Leases:
    """Renews leases, and stops attempts that are cancelled, lost, over a limit, or in the way of a drain.

    A runner is asked to stop first where there is time, and killed after its grace time.
    """

    def __init__(
        self, shared: Shared, store: WorkerStore, workers: Workers, dispatch: Dispatch, writer: BatchWriter
    ) -> None:
        self._store = store
        self._workers = workers
        self._dispatch = dispatch
        self._writer = writer
        self._timers = shared.timers
        self._deadline = shared.deadline
        self._clock = shared.clock
        self._tasks_folder = shared.tasks_folder
        supervisor = shared.settings.supervisor
        self._heartbeat_ms = int(supervisor.heartbeat_s * 1000)
        self._grace_ms = int(supervisor.lease_grace_s * 1000)
        self._cancel_grace_ms = int(supervisor.cancel_grace_s * 1000)
        self._ask_grace_ms = int(ASK_GRACE_S * 1000)
        self._drain_grace_ms = int(supervisor.drain_grace_s * 1000)
        self._drained_at: float | None = None
        self._gave_up = False

    # -- the store

    def heartbeat(self, now: int) -> None:
        """Renew the leases and the lease deadline, and handle what became of the tasks."""
        self._timers.set("heartbeat", now + self._heartbeat_ms)
        held = self._workers.attempts()
        # An attempt that is over is renewed until its outcome is written: else it could count as lost before.
        leases = [attempt.lease for _, attempt in held] + [lease for lease, _ in self._writer.unwritten]
        sent_at = self._deadline.now_ms()
        try:
            views = self._store.heartbeat(leases, self._workers.reports.due())
        except StoreError as error:
            # The process that locks a store of this host keeps all others from taking our tasks.
            if isinstance(error, StoreBusy) and not self._store.shared and sent_at < self._deadline.until:
                self._renew_deadline(sent_at)
            self._timers.set("heartbeat", self._writer.store_failed(error))
            return
        self._renew_deadline(sent_at)
        for (worker, attempt), view in zip(held, views, strict=False):
            if not view.held:
                self.lose(attempt.lease)
            elif view.state is State.CANCEL_REQUESTED:
                self._cancel(worker, attempt, now)
            elif attempt.asked:  # here and below: in case a notification was missed
                self._check_requests(worker, attempt, now)
        self._timers.set("claim", now)

    def _renew_deadline(self, sent_at: int) -> None:
        self._deadline.until = sent_at + self._grace_ms
        self._workers.send_deadline()

    def notify(self, topics: Collection[str], now: int) -> None:
        """Check the tasks for which the store has notified of a cancel or an answer."""
        for worker, attempt in self._workers.attempts():
            if ANYTHING in topics or f"steer:{attempt.lease.task_id}" in topics:
                self._check_requests(worker, attempt, now)

    def _check_requests(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        try:
            if self._store.head(attempt.lease.task_id).state is State.CANCEL_REQUESTED:
                self._cancel(worker, attempt, now)
            if attempt.asked:
                self._send_answers(worker, attempt)
        except (StoreError, TaskNotFound):
            self._timers.set("heartbeat", now)  # its reply says what became of the task

    # -- questions

    def _send_answers(self, worker: WorkerSlot, attempt: LeasedAttempt) -> None:
        answered = {
            request.key: {"action": request.action, "content": request.content}
            for request in self._store.input_requests(attempt.lease.task_id)
            if request.answered_at is not None
        }
        for number, asked in list(attempt.asked.items()):
            if not all(key in answered for key in asked.keys):
                continue
            active = self._workers.resume(worker) if worker.paused else worker
            attempt.has_answers = active is None
            if active is None:
                return
            worker = active
            if worker.runner is not None:
                del attempt.asked[number]
                attempt.waits_since = self._clock.steady_ms()
                answers = {key: answered[key] for key in asked.keys}
                worker.runner.send_aside("reply", {"number": number, "value": answers})

    def resume_answered(self, now: int) -> None:
        """Resume paused tasks that have their answers, before others start."""
        for slot in list(self._workers.paused()):
            attempt = slot.attempt
            if attempt is not None and attempt.has_answers and self._workers.free_worker(slot.queue):
                self._check_requests(slot, attempt, now)

    def _answer_overdue(self, now: int) -> None:
        """Give the default answers to questions whose time is over."""
        for worker, attempt in self._workers.attempts():
            if not attempt.asked or attempt.stopping is not None or attempt.has_answers:
                continue
            limited = [(one.until, one) for one in attempt.asked.values() if one.until is not None]
            for until, asked in limited:
                # Retried, since the question may not be written yet.
                self._timers.set("check", until if until > now else now + _ANSWER_AGAIN_MS)
                if until <= now:
                    with contextlib.suppress(StoreError, TaskNotFound):
                        self._store.answer(attempt.lease.task_id, asked.otherwise)
            if any(until <= now for until, _ in limited):
                self._check_requests(worker, attempt, now)

    def _pause_waiting(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        """Free the worker of a task that has waited for an answer for its grace time."""
        if worker.paused or not attempt.asked or attempt.stopping is not None:
            return
        pause_at = attempt.waits_since + self._ask_grace_ms
        if now < pause_at:
            self._timers.set("check", pause_at)
        elif self._workers.pause(worker):
            self._timers.set("claim", now)

    # -- stopping

    def _cancel(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        if attempt.stopping is not None:
            return
        self._writer.add(attempt.report(Stopping()))
        kill_at = now + self._cancel_grace_ms
        self._stop(worker, attempt, TaskError(CANCELLED, "The task was cancelled."), kill_at)
        if attempt.sent and worker.runner is not None:
            lease = attempt.lease
            worker.runner.send_aside("cancel", {"task_id": lease.task_id, "attempt": lease.attempt})

    def lose(self, lease: Lease) -> None:
        """Kill the attempt of a lost lease; its results are discarded."""
        for worker, attempt in self._workers.attempts():
            if attempt.lease is lease:
                self._stop(worker, attempt, TaskError(LEASE_LOST, "The lease was lost."), 0)

    def fence(self) -> None:
        """Stop all attempts: the lease deadline has passed, and others may run the tasks soon."""
        reason = "The supervisor did not reach its store for longer than the grace time."
        for worker, attempt in self._workers.attempts():
            self._stop(worker, attempt, TaskError("worker_lost" if attempt.sent else HANDED_BACK, reason), 0)

    @property
    def is_draining(self) -> bool:
        return self._drained_at is not None

    def drain(self, now: int) -> None:
        """Let running attempts finish within the grace time; called again, hand everything back at once.

        Service managers and schedulers may end our runners together with us.
        """
        again = self.is_draining and self._drained_at != math.inf
        self._drained_at = now if again else now + self._drain_grace_ms
        self._gave_up = False
        for _, attempt in self._workers.attempts():
            attempt.supervisor_stops = True
        self._timers.set("check", now)

    def retire(self, now: int) -> None:
        """Hand back what has not started, and let running attempts finish, however long they take."""
        self._drained_at = math.inf
        self._timers.set("check", now)

    def _hand_back(self, now: int, drained_at: float) -> None:
        """Hand back what has not started, and after the grace time the rest, once."""
        self._gave_up = now >= drained_at
        for worker, attempt in self._workers.attempts():
            if attempt.sent and now < drained_at:
                self._timers.set("check", None if drained_at == math.inf else int(drained_at))
            else:
                self._stop(worker, attempt, TaskError(HANDED_BACK, "The supervisor was told to stop."), now)

    def _stop(self, worker: WorkerSlot, attempt: LeasedAttempt, error: TaskError, kill_at: int) -> None:
        """Stop an attempt: at once if it was not sent yet, else by `kill_at`."""
        attempt.stop(error, kill_at)
        if attempt.sent:
            self._timers.set("check", kill_at)
            self._workers.kill_at(worker, kill_at)
        else:
            self._dispatch.finish(worker, attempt, attempt.outcome_of_death(0, 0))

    # -- checks

    def check(self, now: int) -> None:
        """Enforce limits, pause waiting tasks, give default answers, and have progress and logs written."""
        if self._drained_at is not None and not self._gave_up:
            self._hand_back(now, self._drained_at)
        for worker in self._workers.busy():
            attempt = worker.attempt
            if attempt is not None:
                self._enforce(worker, attempt, now)
                self._pause_waiting(worker, attempt, now)
                attempt.log.show_unfinished(now)
                self._timers.set("check", attempt.check_again_at(now))
                if (report := attempt.unwritten()) is not None:
                    self._writer.add(report)
        self._answer_overdue(now)

    def _enforce(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        if not attempt.sent:
            self._workers.end_late_runner(worker, now)
            self._timers.set("check", now + CHECK_RUNNER_MS)
            return
        runner = worker.runner
        if runner is None or runner.pid is None:
            return
        if attempt.stopping is None:
            error = attempt.limit_exceeded(runner.pid, self._tasks_folder, now)
            if error is not None and error.type == TIMED_OUT:
                attempt.stop(error, now + self._cancel_grace_ms)
                runner.signal(signal.SIGTERM)
            elif error is not None:
                attempt.stop(error, now)
        if attempt.kill_at is not None and now >= attempt.kill_at:
            attempt.kill_at = now + _KILL_AGAIN_MS
            runner.kill()
