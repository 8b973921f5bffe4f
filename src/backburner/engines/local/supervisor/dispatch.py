"""Dispatch: sends attempts to runners and handles their messages, output and exits."""

from __future__ import annotations

import logging

from ....core.files import work_folder
from ....core.reports import Asked, Change, Checkpointed, Failed, Outcome, Registered, in_words
from ....core.task import Artifact, InputRequest, TaskError
from ....errors import BackburnerError
from ....store.artifacts import open_artifacts
from ....tools.context import MAX_QUESTIONS
from ..isolation.confinement import NOT_CONFINED_CODE
from ..processes.children import RunnerProcess
from ..processes.messages import (
    Asks,
    Done,
    HasArtifact,
    HasCheckpoint,
    InvalidMessage,
    MadeProgress,
    RunnerMessage,
)
from .attempt import ASK_GRACE_S, LeasedAttempt, PendingQuestions
from .background import ArtifactCopies, FolderRemoval
from .batch import SHARE_COMMIT_MS, BatchWriter, Shared
from .claims import AHEAD_WAITS_MS, Pace
from .workers import CHECK_RUNNER_MS, Workers, WorkerSlot

log = logging.getLogger("backburner.supervisor")

_FLUSH_EVERY_MS = 100
_MOST_FALSE_STARTS = 3


class Dispatch:
    """Sends each worker's attempts to its runner, one after another, until each has an outcome.

    `idle_since` is when the last attempt ended, by the steady clock.
    """

    def __init__(
        self,
        shared: Shared,
        workers: Workers,
        writer: BatchWriter,
        pace: Pace,
        removal: FolderRemoval,
    ) -> None:
        settings = shared.settings
        self._workers = workers
        self._writer = writer
        self._timers = shared.timers
        self._pace = pace
        self._removal = removal
        self._clock = shared.clock
        self._tasks_folder = shared.tasks_folder
        self._artifacts = ArtifactCopies(
            open_artifacts(settings.artifacts, shared.tasks_folder), shared.tasks_folder, shared.selector
        )
        self._cancel_grace_ms = int(settings.supervisor.cancel_grace_s * 1000)
        self._ask_grace_ms = int(ASK_GRACE_S * 1000)
        self.idle_since = shared.clock.steady_ms()

    # -- sending

    def start_next(self, worker: WorkerSlot) -> None:
        """Let a free worker start the next attempt of its backlog."""
        if worker.attempt is None and worker.backlog:
            worker.attempt = worker.backlog.popleft()
            self.send_if_ready(worker)

    def send_if_ready(self, worker: WorkerSlot) -> None:
        """Send the worker's attempt to its runner, if both are there."""
        attempt = worker.attempt
        if attempt is None or attempt.sent:
            return
        runner = self._workers.runner_for(worker, attempt.lease.task)
        if isinstance(runner, TaskError):
            self.finish(worker, attempt, Failed(runner))
            self.start_next(worker)
        elif runner.ready:
            self._send(worker, attempt, runner)
        else:
            self._timers.set("check", self._clock.steady_ms() + CHECK_RUNNER_MS)

    def _send(self, worker: WorkerSlot, attempt: LeasedAttempt, runner: RunnerProcess) -> None:
        now = self._clock.steady_ms()
        attempt.begin(now, self._clock.now_ms(), runner.pid)
        log.debug("%s starts in process %s", attempt.lease.task.tool_name, runner.pid, extra=attempt.in_logs)
        if self._pace.room(worker.queue) > 1:
            # Where tasks are quick, the start is written with the end.
            self._timers.set("check", now + SHARE_COMMIT_MS)
        else:
            self._writer.add(attempt.report())
        if attempt.deadline is not None:
            self._workers.kill_at(worker, attempt.deadline + self._cancel_grace_ms)
        last = attempt.retires_runner or self._workers.is_last_task_of(runner)
        assignment = attempt.assignment(self._tasks_folder, worker.number, last=last)
        if not runner.send("run", assignment):
            runner.kill()  # it has ended; its exit follows
        self._timers.set("check", attempt.check_again_at(now))
        if worker.backlog:
            self._timers.set("check", now + AHEAD_WAITS_MS)

    # -- events of runners

    def app_not_loaded(self, worker: WorkerSlot, error: TaskError) -> None:
        """Fail the attempt of a worker whose runner could not import the app, and has ended."""
        if worker.attempt is not None:
            self.finish(worker, worker.attempt, Failed(error))
            self.start_next(worker)

    def output(self, attempt: LeasedAttempt, output: list[tuple[str, bytes]]) -> None:
        """Add to the log what a runner, or a child of it, wrote: pairs of stream and bytes."""
        for stream, data in output:
            attempt.log.feed(stream, data, self._clock.now_ms())
        self._timers.set("check", self._clock.steady_ms() + _FLUSH_EVERY_MS)

    def message(self, worker: WorkerSlot, attempt: LeasedAttempt, message: RunnerMessage) -> None:
        """Handle a message of a runner about its attempt. Raises InvalidMessage."""
        now = self._clock.steady_ms()
        match message:
            case Done():
                self._pace.add(worker.queue, now - (attempt.sent_at or now))
                self.finish(worker, attempt, attempt.outcome_of(message))
                self._workers.task_ended(worker, fresh=attempt.retires_runner)
                self.start_next(worker)
            case MadeProgress(progress=progress):
                attempt.progressed(progress)
                self._timers.set("check", now)
            case Asks():
                self._take_questions(attempt, message, now)
            case HasCheckpoint(number=number, data_json=data_json):
                self._write_then_reply(worker.runner, attempt, number, Checkpointed(data_json))
            case HasArtifact(number=number, artifact=artifact):
                if (error := attempt.add_artifact(artifact)) is None:
                    self._copy_then_reply(worker.runner, attempt, number, artifact)
                else:
                    attempt.stop(error, now)
                    self._timers.set("check", attempt.kill_at)

    def _take_questions(self, attempt: LeasedAttempt, asks: Asks, now: int) -> None:
        """Have questions written; the answers come with the reply, which the runner waits for."""
        if len(attempt.asked) >= MAX_QUESTIONS:
            raise InvalidMessage("it asks too many questions at once")
        lease, wall_now = attempt.lease, self._clock.now_ms()
        requests = tuple(
            InputRequest(lease.task_id, each.key, lease.attempt, each.method, each.params, wall_now)
            for each in asks.requests
        )
        until = None if asks.timeout_s is None else now + int(asks.timeout_s * 1000)
        otherwise = {each.key: each.otherwise for each in asks.requests}
        attempt.asked[asks.number] = PendingQuestions([request.key for request in requests], until, otherwise)
        attempt.waits_since = now
        self._timers.set("check", now + self._ask_grace_ms)
        self._timers.set("check", until)
        self._writer.add(attempt.report(Asked(requests)))

    def _copy_then_reply(
        self, runner: RunnerProcess | None, attempt: LeasedAttempt, number: int, artifact: Artifact
    ) -> None:
        """Copy the artifact to its storage and have that written; the runner waits for both."""

        def stored(error: BackburnerError | None) -> None:
            if attempt.over:
                return
            if error is None:
                self._write_then_reply(runner, attempt, number, Registered(artifact))
            elif runner is not None:
                runner.send_aside("reply", {"number": number, "refused": error.details})

        self._artifacts.copy(artifact, stored)

    def _write_then_reply(
        self, runner: RunnerProcess | None, attempt: LeasedAttempt, number: int, change: Change
    ) -> None:
        """Have a change written; the runner waits until it is on disk."""

        def reply() -> None:
            if runner is not None:
                runner.send_aside("reply", {"number": number})

        self._writer.add(attempt.report(change), then=reply)

    def runner_misbehaved(self, attempt: LeasedAttempt, reason: str) -> None:
        """Fail the attempt of a runner that is being killed for an invalid message."""
        message = f"The process that ran the task did what it may not: {reason}."
        attempt.stop(TaskError("runner_misbehaved", message), self._clock.steady_ms())
        self._timers.set("check", attempt.kill_at)

    def runner_exited(self, worker: WorkerSlot, code: int) -> None:
        """Handle the end of a runner's process: its exit code, or minus the signal's number."""
        attempt = worker.attempt
        if attempt is None:
            return
        if not attempt.sent and code == NOT_CONFINED_CODE:
            message = "The process for the task could not be confined; the task's log has the reason."
            self.finish(worker, attempt, Failed(TaskError("not_confined", message)))
            self.start_next(worker)
            return
        if not attempt.sent:
            attempt.false_starts += 1
            if attempt.false_starts < _MOST_FALSE_STARTS:
                self.send_if_ready(worker)  # to another runner
                return
        task = attempt.lease.task
        self._removal.remove(work_folder(self._tasks_folder, task.task_id, task.attempt))
        self.finish(worker, attempt, attempt.outcome_of_death(code, self._clock.steady_ms()))
        self.start_next(worker)

    def finish(self, worker: WorkerSlot, attempt: LeasedAttempt, outcome: Outcome) -> None:
        """End the attempt, take it from its worker, and have its outcome written."""
        worker.remove(attempt)
        attempt.over = True
        attempt.end_span(outcome)
        log.debug("%s ended: %s", attempt.lease.task.tool_name, in_words(outcome), extra=attempt.in_logs)
        self.idle_since = self._clock.steady_ms()
        if not attempt.is_lost:
            attempt.log.end(self._clock.now_ms())
            self._writer.add(attempt.report(outcome))
