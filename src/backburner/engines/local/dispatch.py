"""The give and take with runners: they get attempts, and what they say of them is taken down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ...clock import Clock
from ...config import Settings
from ...context import MAX_QUESTIONS
from ...errors import BackburnerError
from ...folders import work_folder
from ...reports import Asked, Change, Checkpointed, Failed, Outcome, Registered, in_words
from ...task import Artifact, InputRequest, TaskError
from .background import FolderRemoval
from .child_processes import RunnerProcess
from .confinement import NOT_CONFINED_CODE
from .keeping_artifacts import ArtifactKeeping
from .leased_attempt import AskedFor, LeasedAttempt, Report
from .pace import AHEAD_WAITS_MS, Pace
from .runner_messages import Asks, Done, HasArtifact, HasCheckpoint, MadeProgress, RunnerMessage
from .timers import Timers
from .wire import NotAMessage
from .worker_slot import WorkerSlot
from .workers import LOOK_FOR_RUNNER_MS, Workers
from .write_batch import SHARE_COMMIT_MS, WriteBatch

log = logging.getLogger("backburner.supervisor")

_FLUSH_EVERY_MS = 100
_MOST_FALSE_STARTS = 3


class Dispatch:
    """Gives each worker's attempts to its runner, one after another, until each has an outcome.

    `idle_since` is when the last of them was over, by the steady clock.
    """

    def __init__(
        self,
        workers: Workers,
        batch: WriteBatch[Report],
        timers: Timers,
        pace: Pace,
        removal: FolderRemoval,
        artifacts: ArtifactKeeping,
        clock: Clock,
        settings: Settings,
        tasks_folder: Path,
        ended: Callable[[str], object],
    ) -> None:
        """`ended` is called with each task whose attempt is over, before that is written."""
        self._workers = workers
        self._batch = batch
        self._timers = timers
        self._pace = pace
        self._removal = removal
        self._artifacts = artifacts
        self._clock = clock
        self._tasks_folder = tasks_folder
        self._ended = ended
        self._limits = settings.limits
        self._cancel_grace_ms = int(settings.supervisor.cancel_grace_s * 1000)
        self._ask_grace_ms = int(settings.supervisor.ask_grace_s * 1000)
        self.idle_since = clock.steady_ms()

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
        runner = self._workers.runner_for(worker, attempt.lease.task)
        if isinstance(runner, TaskError):
            self.finish(worker, attempt, Failed(runner))
            self.begin_next(worker)
        elif runner.ready:
            self._send(worker, attempt, runner)
        else:
            self._timers.soon("look", self._clock.steady_ms() + LOOK_FOR_RUNNER_MS)

    def app_did_not_load(self, worker: WorkerSlot, error: TaskError) -> None:
        if worker.attempt is not None:
            self.finish(worker, worker.attempt, Failed(error))
            self.begin_next(worker)

    def _send(self, worker: WorkerSlot, attempt: LeasedAttempt, runner: RunnerProcess) -> None:
        now = self._clock.steady_ms()
        attempt.begin(now, self._clock.now_ms(), runner.pid)
        log.debug("%s begins in process %s", attempt.lease.task.tool_name, runner.pid, extra=attempt.in_logs)
        if self._pace.room(worker.queue) > 1:
            # Where tasks are over at once, the start is written with the end.
            self._timers.soon("look", now + SHARE_COMMIT_MS)
        else:
            self._batch.add(attempt.report())
        if attempt.deadline is not None:
            self._workers.end_at(worker, attempt.deadline + self._cancel_grace_ms)
        last = attempt.spoils_its_runner or self._workers.is_last_task_of(runner)
        assignment = attempt.assignment(self._tasks_folder, self._limits, worker.number, last=last)
        if not runner.send("run", assignment.to_json()):
            runner.kill()  # it is gone; its end is heard
        self._timers.soon("look", attempt.look_again_at(now))
        if worker.backlog:
            self._timers.soon("look", now + AHEAD_WAITS_MS)

    # -- taking

    def runner_wrote(
        self, worker: WorkerSlot, attempt: LeasedAttempt, output: list[tuple[str, bytes]]
    ) -> None:
        for stream, data in output:
            attempt.log.feed(stream, data, self._clock.now_ms())
        self._timers.soon("look", self._clock.steady_ms() + _FLUSH_EVERY_MS)

    def runner_said(self, worker: WorkerSlot, attempt: LeasedAttempt, message: RunnerMessage) -> None:
        now = self._clock.steady_ms()
        match message:
            case Done():
                self._pace.measured(worker.queue, now - (attempt.sent_at or now))
                self.finish(worker, attempt, attempt.outcome_of(message))
                self._workers.task_is_over(worker, fresh=attempt.spoils_its_runner)
                self.begin_next(worker)
            case MadeProgress(progress=progress):
                attempt.progressed(progress)
                self._timers.soon("look", now)
            case Asks():
                self._take_questions(attempt, message, now)
            case HasCheckpoint(number=number, data_json=data_json):
                self._write_then_reply(worker.runner, attempt, number, Checkpointed(data_json))
            case HasArtifact(number=number, artifact=artifact):
                if (error := attempt.keeps(artifact)) is None:
                    self._keep_then_reply(worker.runner, attempt, number, artifact)
                else:
                    attempt.stop(error, now)
                    self._timers.soon("look", attempt.kill_at)

    def _take_questions(self, attempt: LeasedAttempt, asks: Asks, now: int) -> None:
        """The runner waits for the answers, which come with the reply."""
        if len(attempt.asked) >= MAX_QUESTIONS:
            raise NotAMessage("it asks more than anybody can answer")
        lease, wall_now = attempt.lease, self._clock.now_ms()
        requests = tuple(
            InputRequest(lease.task_id, each.key, lease.attempt, each.method, each.params, wall_now)
            for each in asks.questions
        )
        until = None if asks.timeout_s is None else now + int(asks.timeout_s * 1000)
        otherwise = {each.key: each.otherwise for each in asks.questions}
        attempt.asked[asks.number] = AskedFor([request.key for request in requests], until, otherwise)
        attempt.waits_since = now
        self._timers.soon("look", now + self._ask_grace_ms)
        self._timers.soon("look", until)
        self._batch.add(attempt.report(Asked(requests)))

    def _keep_then_reply(
        self, runner: RunnerProcess | None, attempt: LeasedAttempt, number: int, artifact: Artifact
    ) -> None:
        """The runner waits until the artifact is where it is kept, and then until that is on disk."""

        def kept(error: BackburnerError | None) -> None:
            if attempt.over:
                return
            if error is None:
                self._write_then_reply(runner, attempt, number, Registered(artifact))
            elif runner is not None:
                runner.tell("reply", {"number": number, "refused": error.details})

        self._artifacts.keep(artifact, kept)

    def _write_then_reply(
        self, runner: RunnerProcess | None, attempt: LeasedAttempt, number: int, change: Change
    ) -> None:
        """The runner waits until this is on disk."""

        def reply() -> None:
            if runner is not None:
                runner.tell("reply", {"number": number})

        self._batch.add(attempt.report(change), then=reply)

    def runner_misbehaved(self, worker: WorkerSlot, attempt: LeasedAttempt, reason: str) -> None:
        message = f"The process that ran the task did what it may not: {reason}."
        attempt.stop(TaskError("runner_misbehaved", message), self._clock.steady_ms())
        self._timers.soon("look", attempt.kill_at)

    def runner_died(self, worker: WorkerSlot, code: int) -> None:
        attempt = worker.attempt
        if attempt is None:
            return
        if not attempt.sent and code == NOT_CONFINED_CODE:
            message = "The process for the task could not be confined; the task's log says why."
            self.finish(worker, attempt, Failed(TaskError("not_confined", message)))
            self.begin_next(worker)
            return
        if not attempt.sent:
            attempt.false_starts += 1
            if attempt.false_starts < _MOST_FALSE_STARTS:
                self.runner_is_ready(worker)  # another one will do
                return
        task = attempt.lease.task
        self._removal.remove(work_folder(self._tasks_folder, task.task_id, task.attempt))
        self.finish(worker, attempt, attempt.outcome_of_death(code, self._clock.steady_ms()))
        self.begin_next(worker)

    def finish(self, worker: WorkerSlot, attempt: LeasedAttempt, outcome: Outcome) -> None:
        """The attempt is over, and off its worker's hands. The worker can begin with its next one."""
        worker.part_from(attempt)
        attempt.over = True
        self._ended(attempt.lease.task_id)
        attempt.end_span(outcome)
        log.debug("%s ended: %s", attempt.lease.task.tool_name, in_words(outcome), extra=attempt.in_logs)
        self.idle_since = self._clock.steady_ms()
        if not attempt.is_lost:
            attempt.log.end(self._clock.now_ms())
            self._batch.add(attempt.report(outcome))
