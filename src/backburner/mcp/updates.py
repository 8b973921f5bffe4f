"""What a client learns about a task, the same whatever the server speaks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import mcp_types as types

from ..estimate import ExpectedRuntime

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
FINISHED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far a task is, where the server tells: `percent` is 0 to 100.

    `estimate` is how long it should run, as the server said it when the task began.
    """

    percent: float | None = None
    phase: str | None = None
    message: str | None = None
    eta_s: float | None = None
    estimate: ExpectedRuntime | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a tool wrote; `seq` counts from 1."""

    seq: int
    ts: str
    stream: str
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class Update:
    """Where a task is. `questions` are the open ones, by key: the requests that want an answer."""

    task_id: str
    status: Status
    message: str = ""
    progress: TaskProgress | None = None
    questions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: How long the server would like us to wait before we ask again.
    poll_s: float | None = None
    #: The result, where the server told it with the end and may not tell it again.
    result: types.CallToolResult | None = None

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    @property
    def fingerprint(self) -> str:
        """The same for two updates that tell the same, also in another process.

        The time left is no part of it: it changes by itself.
        """
        progress = self.progress
        shown = () if progress is None else (progress.percent, progress.phase, progress.message)
        # Where there is progress, the message only says it again, with the time left.
        message = self.message if progress is None or self.finished else ""
        told = [self.status, message, shown, sorted(self.questions)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
