"""What a worker may report about its attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .task import Artifact, InputRequest, LogLine, Progress, TaskError


@dataclass(frozen=True, slots=True)
class Started:
    """The runner begins the tool; `at` is when, in milliseconds (default: now)."""

    pid: int | None = None
    timeout_at: int | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Progressed:
    progress: Progress


@dataclass(frozen=True, slots=True)
class Logged:
    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    data_json: str


@dataclass(frozen=True, slots=True)
class Registered:
    artifact: Artifact


@dataclass(frozen=True, slots=True)
class Asked:
    """The tool asks the client; the task waits in `input_required` until all are answered."""

    requests: tuple[InputRequest, ...]


@dataclass(frozen=True, slots=True)
class Stopping:
    """The runner was told to stop because of a cancel."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    result_json: str
    metrics: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed. Whether another one follows is for the task's Retry to say.

    `retryable` says that the tool's own Retry covers the exception: only its process has both.
    """

    error: TaskError
    metrics: Mapping[str, Any] | None = None
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class TimedOut:
    error: TaskError
    metrics: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The attempt stopped because of a cancel."""

    error: TaskError
    metrics: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class HandedBack:
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
    """How the attempt ended, in a word."""
    return _KINDS[type(outcome)]


def in_words(outcome: Outcome) -> str:
    """The same with its error, if it has one."""
    if isinstance(outcome, Succeeded | HandedBack):
        return kind_of(outcome)
    return f"{kind_of(outcome)}, {outcome.error.type}: {outcome.error.message}"


Change = Started | Progressed | Logged | Checkpointed | Registered | Asked | Stopping | Outcome
