"""Watching over attempts: which must end, when, and by what force."""

from __future__ import annotations

import math
import signal
from pathlib import Path

from ...config import Settings
from ...reports import Stopping
from ...store import Lease
from ...task import TaskError
from .dispatch import Dispatch
from .leased_attempt import CANCELLED, HANDED_BACK, LEASE_LOST, TIMED_OUT, LeasedAttempt, Report
from .timers import Timers
from .worker_slot import WorkerSlot
from .workers import LOOK_FOR_RUNNER_MS, Workers
from .write_batch import WriteBatch

_KILL_AGAIN_MS = 1000


class Oversight:
    """Ends attempts that are over a limit, cancelled, lost, or in the way of the supervisor's own end.

    A runner is asked first where there is time for it, and killed when its grace is over.
    """

    def __init__(
        self,
        workers: Workers,
        dispatch: Dispatch,
        batch: WriteBatch[Report],
        timers: Timers,
        settings: Settings,
        tasks_folder: Path,
    ) -> None:
        self._workers = workers
        self._dispatch = dispatch
        self._batch = batch
        self._timers = timers
        self._cancel_grace_ms = int(settings.supervisor.cancel_grace_s * 1000)
        self._ask_grace_ms = int(settings.supervisor.ask_grace_s * 1000)
        self._drain_grace_ms = int(settings.supervisor.drain_grace_s * 1000)
        self._tasks_folder = tasks_folder
        self._drained_at: float | None = None
        self._gave_up = False

    # -- what others want

    def cancel(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        """Somebody wants the task stopped."""
        if attempt.stopping is not None:
            return
        self._batch.add(attempt.report(Stopping()))
        kill_at = now + self._cancel_grace_ms
        self._stop(worker, attempt, TaskError(CANCELLED, "The task was cancelled."), kill_at)
        if attempt.sent and worker.runner is not None:
            worker.runner.tell("cancel", {"task_id": attempt.lease.task_id, "attempt": attempt.lease.attempt})

    def lose(self, lease: Lease) -> None:
        """Somebody else has the task now, or nobody: what our runner does is of no use."""
        for worker, attempt in self._workers.attempts():
            if attempt.lease is lease:
                self._stop(worker, attempt, TaskError(LEASE_LOST, "The lease was lost."), 0)

    def fence(self) -> None:
        """The hold is over: others may run the tasks soon, so nothing of ours may go on."""
        reason = "The supervisor did not reach its store for longer than the grace time."
        for worker, attempt in self._workers.attempts():
            self._stop(worker, attempt, TaskError("worker_lost" if attempt.sent else HANDED_BACK, reason), 0)

    @property
    def is_draining(self) -> bool:
        return self._drained_at is not None

    def drain(self, now: int) -> None:
        """At first let finish what runs, for its grace; said once more, hand everything back at once.

        Who ends us may end our runners with us, as service managers and schedulers do.
        """
        again = self.is_draining and self._drained_at != math.inf
        self._drained_at = now if again else now + self._drain_grace_ms
        self._gave_up = False
        for _, attempt in self._workers.attempts():
            attempt.may_be_ended = True
        self._timers.soon("look", now)

    def retire(self, now: int) -> None:
        """Hand back what no runner has, and let finish what runs, however long it takes."""
        self._drained_at = math.inf
        self._timers.soon("look", now)

    # -- looking

    def look(self, now: int) -> None:
        """Enforce the limits, end what must end, and have written what was said."""
        if self._drained_at is not None and not self._gave_up:
            self._give_up(now, self._drained_at)
        for worker in self._workers.with_parked():
            attempt = worker.attempt
            if attempt is not None:
                self._enforce(worker, attempt, now)
                self._park_if_it_waits(worker, attempt, now)
                attempt.log.show_unfinished(now)
                self._timers.soon("look", attempt.look_again_at(now))
                if (news := attempt.news()) is not None:
                    self._batch.add(news)

    def _park_if_it_waits(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        """Others may have the worker of a task that has waited for an answer for its grace."""
        if worker.parked or not attempt.asked or attempt.stopping is not None:
            return
        park_at = attempt.waits_since + self._ask_grace_ms
        if now < park_at:
            self._timers.soon("look", park_at)
        elif self._workers.parking.park(worker):
            self._timers.soon("claim", now)

    def _give_up(self, now: int, drained_at: float) -> None:
        """Hand back what no runner has, and after the grace the rest: once, for its end may take a while."""
        self._gave_up = now >= drained_at
        for worker, attempt in self._workers.attempts():
            if attempt.sent and now < drained_at:
                self._timers.soon("look", None if drained_at == math.inf else int(drained_at))
            else:
                self._stop(worker, attempt, TaskError(HANDED_BACK, "The supervisor was told to stop."), now)

    def _stop(self, worker: WorkerSlot, attempt: LeasedAttempt, error: TaskError, kill_at: int) -> None:
        """End an attempt: at once if no runner has it yet, else by `kill_at`."""
        attempt.stop(error, kill_at)
        if attempt.sent:
            self._timers.soon("look", kill_at)
            self._workers.end_at(worker, kill_at)
        else:
            self._dispatch.finish(worker, attempt, attempt.outcome_of_death(0, 0))

    def _enforce(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        if not attempt.sent:
            self._workers.end_late_runner(worker, now)
            self._timers.soon("look", now + LOOK_FOR_RUNNER_MS)
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
