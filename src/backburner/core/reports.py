"""Reports of a worker about its attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from .task import Artifact, InputRequest, LogLine, Progress, TaskError


class Started(Struct, frozen=True, tag=True):
    """The runner begins the tool; `at` is when, in milliseconds (default: now)."""

    pid: int | None = None
    timeout_at: int | None = None
    at: int | None = None


class Progressed(Struct, frozen=True, tag=True):
    progress: Progress


class Logged(Struct, frozen=True, tag=True):
    lines: tuple[LogLine, ...]


class Checkpointed(Struct, frozen=True, tag=True):
    data_json: str


class Registered(Struct, frozen=True, tag=True):
    artifact: Artifact


class Asked(Struct, frozen=True, tag=True):
    """The tool asks the client; the task waits in `input_required` until all are answered."""

    requests: tuple[InputRequest, ...]


class Stopping(Struct, frozen=True, tag=True):
    """The runner was told to stop because of a cancel."""


class Succeeded(Struct, frozen=True, tag=True):
    result_json: str
    metrics: Mapping[str, Any] | None = None


class Failed(Struct, frozen=True, tag=True):
    """The attempt failed. Whether another one follows is for the task's Retry to say.

    `retryable` says that the tool's own Retry covers the exception: only its process has both.
    """

    error: TaskError
    metrics: Mapping[str, Any] | None = None
    retryable: bool = False


class TimedOut(Struct, frozen=True, tag=True):
    error: TaskError
    metrics: Mapping[str, Any] | None = None


class Cancelled(Struct, frozen=True, tag=True):
    """The attempt stopped because of a cancel."""

    error: TaskError
    metrics: Mapping[str, Any] | None = None


class HandedBack(Struct, frozen=True, tag=True):
    """The worker gives the task back undone; this does not count as a try."""

    reason: str


Outcome = Succeeded | Failed | TimedOut | Cancelled | HandedBack
_KINDS = {
    Succeeded: "succeeded",
    Failed: "failed",
    TimedOut: "timed_out",
    Cancelled: "cancelled",
    HandedBack: "handed_back",
}


def kind_of(outcome: Outcome) -> str:
    """Return the kind of an outcome, as the audit trail names it."""
    return _KINDS[type(outcome)]


def in_words(outcome: Outcome) -> str:
    """The same with its error, if it has one."""
    if isinstance(outcome, Succeeded | HandedBack):
        return kind_of(outcome)
    return f"{kind_of(outcome)}, {outcome.error.type}: {outcome.error.message}"


Change = Started | Progressed | Logged | Checkpointed | Registered | Asked | Stopping | Outcome
