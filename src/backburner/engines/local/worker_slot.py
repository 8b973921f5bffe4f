"""One worker of a supervisor, and who is told what its runner does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...task import TaskError
from .child_processes import RunnerProcess
from .leased_attempt import LeasedAttempt
from .runner_messages import RunnerMessage


@dataclass
class WorkerSlot:
    """One worker: it runs one task at a time, in a runner that it keeps for the next one.

    `backlog` are tasks that it has leased ahead; only where tasks are over in milliseconds. One that is
    `parked` is no worker, but a task that waits for an answer beside them, in its runner.
    """

    worker_id: str
    number: int
    queue: str
    runner: RunnerProcess | None = None
    attempt: LeasedAttempt | None = None
    backlog: deque[LeasedAttempt] = field(default_factory=deque)
    parked: bool = False

    @property
    def in_logs(self) -> dict[str, Any]:
        """What a line of the log about it concerns."""
        return {} if self.attempt is None else self.attempt.in_logs

    @property
    def load(self) -> int:
        """How many tasks it holds."""
        return len(self.backlog) + (self.attempt is not None)

    def attempts(self) -> list[LeasedAttempt]:
        """What it holds: first the one that it is at, then its backlog."""
        return [*self.backlog] if self.attempt is None else [self.attempt, *self.backlog]

    def part_from(self, attempt: LeasedAttempt) -> None:
        """Hold this attempt no longer."""
        if attempt is self.attempt:
            self.attempt = None
        else:
            self.backlog.remove(attempt)


class RunnerListener(Protocol):
    """Who is told what the runners do."""

    def runner_is_ready(self, worker: WorkerSlot) -> None:
        """It can be given work."""
        ...

    def app_did_not_load(self, worker: WorkerSlot, error: TaskError) -> None:
        """It was to import the app for itself, and could not; it is gone."""
        ...

    def runner_said(self, worker: WorkerSlot, attempt: LeasedAttempt, message: RunnerMessage) -> None:
        """It sent a message about its attempt."""
        ...

    def runner_misbehaved(self, worker: WorkerSlot, attempt: LeasedAttempt, reason: str) -> None:
        """It said what it may not, and is being killed; its end will be told."""
        ...

    def runner_wrote(
        self, worker: WorkerSlot, attempt: LeasedAttempt, output: list[tuple[str, bytes]]
    ) -> None:
        """It, or a child of it, wrote to a standard stream: names of streams, and what was written."""
        ...

    def runner_died(self, worker: WorkerSlot, code: int) -> None:
        """Its process ended, with this exit code, or minus the signal's number."""
        ...
