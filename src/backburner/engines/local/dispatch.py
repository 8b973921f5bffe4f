"""The give and take with runners: they get attempts, and what they say of them is taken down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...clock import Clock
from ...config import Settings
from ...context import scratch_folder
from ...store import Asked, Checkpointed, Failed, Outcome, Registered
from ...task import Artifact, InputRequest, Progress, TaskError
from .background import FolderRemoval
from .child_processes import RunnerProcess
from .leased_attempt import LeasedAttempt, Report
from .pace import AHEAD_WAITS_MS, Pace
from .timers import Timers
from .workers import Workers, WorkerSlot
from .write_batch import SHARE_COMMIT_MS, WriteBatch

_FLUSH_EVERY_MS = 100
_MOST_FALSE_STARTS = 3


class Dispatch:
    """Gives each worker's attempts to its runner, one after another, until each has an outcome.

    `idle_since` is when the last of them was over.
    """

    def __init__(
        self,
        workers: Workers,
        batch: WriteBatch[Report],
        timers: Timers,
        pace: Pace,
        removal: FolderRemoval,
        clock: Clock,
        settings: Settings,
        tasks_folder: Path,
    ) -> None:
        self._workers = workers
        self._batch = batch
        self._timers = timers
        self._pace = pace
        self._removal = removal
        self._clock = clock
        self._tasks_folder = tasks_folder
        self._max_result_bytes = settings.limits.max_result_bytes
        self.idle_since = clock.now_ms()

    # -- giving

    def begin_next(self, worker: WorkerSlot) -> None:
        """Let a free worker begin with what it has leased, if it has."""
        if worker.attempt is None and worker.backlog:
            worker.attempt = worker.backlog.popleft()
            self.runner_is_ready(worker)

    def runner_is_ready(self, worker: WorkerSlot) -> None:
        """Send the worker's attempt to its runner, if both are there."""
        attempt = worker.attempt
        if attempt is None or attempt.sent:
            return
        runner = self._workers.runner_for(worker, attempt.lease.task.target)
        if isinstance(runner, TaskError):
            self.finish(worker, attempt, Failed(runner))
            self.begin_next(worker)
        elif runner.ready:
            self._send(worker, attempt, runner)
        else:
            self._timers.soon("look", self._clock.now_ms() + self._workers.patience_ms)

    def _send(self, worker: WorkerSlot, attempt: LeasedAttempt, runner: RunnerProcess) -> None:
        now = self._clock.now_ms()
        attempt.begin(now, runner.pid)
        if self._pace.room(worker.queue) > 1:
            # Where tasks are over at once, the start is written with the end.
            self._timers.soon("look", now + SHARE_COMMIT_MS)
        else:
            self._batch.add(attempt.report())
        assignment = attempt.assignment(self._tasks_folder, self._max_result_bytes, worker.number)
        if not runner.send("run", assignment.to_json()):
            runner.kill()  # it is gone, or takes nothing in; its end is heard
        self._timers.soon("look", attempt.look_again_at(now))
        if worker.backlog:
            self._timers.soon("look", now + AHEAD_WAITS_MS)

    # -- taking

    def runner_wrote(
        self, worker: WorkerSlot, attempt: LeasedAttempt, output: list[tuple[str, bytes]]
    ) -> None:
        now = self._clock.now_ms()
        for stream, data in output:
            attempt.log.feed(stream, data, now)
        self._timers.soon("look", now + _FLUSH_EVERY_MS)

    def runner_said(
        self, worker: WorkerSlot, attempt: LeasedAttempt, kind: str, body: dict[str, Any]
    ) -> None:
        now = self._clock.now_ms()
        if kind == "done":
            self._pace.measured(worker.queue, now - (attempt.sent_at or now))
            self.finish(worker, attempt, attempt.outcome_of(body))
            self._workers.task_is_over(worker, fresh=attempt.spoils_its_runner)
            self.begin_next(worker)
        elif kind == "progress":
            attempt.progressed(Progress.from_dict(body))
            self._timers.soon("look", now)
        elif kind == "ask":
            self._take_questions(attempt, body, now)
        else:
            self._take_checkpoint_or_artifact(worker, attempt, kind, body)

    def _take_questions(self, attempt: LeasedAttempt, body: dict[str, Any], now: int) -> None:
        """The runner waits for the answers, which come with the reply."""
        lease = attempt.lease
        requests = tuple(
            InputRequest(lease.task_id, ask["key"], lease.attempt, ask["method"], ask["params"], now)
            for ask in body["requests"]
        )
        attempt.asked[body["number"]] = [request.key for request in requests]
        self._batch.add(attempt.report(Asked(requests)))

    def _take_checkpoint_or_artifact(
        self, worker: WorkerSlot, attempt: LeasedAttempt, kind: str, body: dict[str, Any]
    ) -> None:
        """The runner waits until its checkpoint or artifact is on disk."""
        number, runner = body.pop("number"), worker.runner
        change = Checkpointed(body["data_json"]) if kind == "checkpoint" else Registered(Artifact(**body))

        def reply() -> None:
            if runner is not None:
                runner.tell("reply", {"number": number})

        self._batch.add(attempt.report(change), then=reply)

    def runner_died(self, worker: WorkerSlot, code: int) -> None:
        attempt = worker.attempt
        if attempt is None:
            return
        if not attempt.sent:
            attempt.false_starts += 1
            if attempt.false_starts < _MOST_FALSE_STARTS:
                self.runner_is_ready(worker)  # another one will do
                return
        task = attempt.lease.task
        self._removal.remove(scratch_folder(self._tasks_folder / task.task_id, task.attempt))
        self.finish(worker, attempt, attempt.outcome_of_death(code))
        self.begin_next(worker)

    def finish(self, worker: WorkerSlot, attempt: LeasedAttempt, outcome: Outcome) -> None:
        """The attempt is over, and off its worker's hands. The worker can begin with its next one."""
        worker.part_from(attempt)
        self.idle_since = self._clock.now_ms()
        if not attempt.is_lost:
            attempt.log.end(self.idle_since)
            self._batch.add(attempt.report(outcome))
