"""Messages between a supervisor, its zygotes and its runners, decoded strictly.

A message to or from a runner is a line of JSON, `[kind, body]`. A message to or from a zygote is one packet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from ....core import json_text
from ....core.files import safe_file_name
from ....core.questions import check_question
from ....core.task import Action, Artifact, Progress, TaskError
from ....core.times import SystemClock
from ....errors import InvalidJson, InvalidRequest
from ....store.protocol import Lease
from ....tools.context import LONGEST_TIMEOUT_S, MAX_NAME_CHARS, MAX_QUESTIONS
from ..isolation.confinement import Confinement

#: In a runner's output, a log record begins with this, and is JSON up to the newline.
RECORD = b"\0log "
#: Longer lines are split.
LONGEST_LINE = 16_384
LONGEST_RECORD = 1 << 20
#: The largest integer in a message.
MAX_NUMBER = 2**53

_CHUNK = 1 << 18
_SHOWN_BYTES = 80


class InvalidMessage(ValueError):
    """A message that its sender may not send."""


T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, dict[str, Any]]).decode


def encode(kind: str, body: Any) -> bytes:
    return _encode((kind, body)) + b"\n"  # not `json`, which tools may patch


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Decode a line. Raises InvalidMessage."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = repr(line if len(line) <= _SHOWN_BYTES else line[:_SHOWN_BYTES] + b"...").removeprefix("b")
        raise InvalidMessage(f"{shown} is not a message ({error})") from None


class Stream(Protocol):
    def recv(self, size: int, /) -> bytes: ...


class MessageReader:
    """Reads messages from a stream socket. One of more than `largest` bytes is invalid.

    `dry` says that the last read found nothing, `ended` that the stream is over.
    """

    def __init__(self, stream: Stream, largest: int | None = None) -> None:
        self._stream = stream
        self._largest = largest
        self._parts: list[bytes] = []
        self._size = 0
        self.dry = self.ended = False

    def read(self) -> list[tuple[str, dict[str, Any]]]:
        """Read what has arrived; blocks only on a blocking socket. Raises InvalidMessage."""
        try:
            data = self._stream.recv(_CHUNK)
        except BlockingIOError:
            self.dry = True
            return []
        except OSError:
            data = b""
        if not data:
            self.dry = self.ended = True
            return []
        self.dry = False
        return [decode(line) for line in self._complete_lines(data)]

    def _complete_lines(self, data: bytes) -> list[bytes]:
        self._parts.append(data)
        self._size += len(data)
        lines: list[bytes] = []
        if b"\n" in data:
            *lines, rest = b"".join(self._parts).split(b"\n")
            self._parts, self._size = [rest], len(rest)
        if self._largest is not None and max(map(len, lines), default=self._size) > self._largest:
            raise InvalidMessage(f"a message has at most {self._largest} bytes")
        return lines

    def each(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield messages until the end of the stream, from a blocking socket."""
        while not self.ended:
            yield from self.read()


# -- from runners ----------------------------------------------------------------------------------

Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
Measure = Annotated[int, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)] | float | None
Metric = Number | Annotated[float, Meta(ge=0, le=MAX_NUMBER)]


class _FromRunner(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    task_id: str
    attempt: int


class Done(_FromRunner, frozen=True):
    """The final message of an attempt.

    `changed`: the task changed its process, which gets no other. `retryable`: the tool's Retry covers
    the failure.
    """

    kind: Literal["succeeded", "failed", "cancelled"]
    metrics: dict[Annotated[str, Meta(pattern="^(wall_s|cpu_s|max_rss_mb)$")], Metric]
    changed: bool
    result_json: str | None = None
    error: TaskError | None = None
    retryable: bool = False

    def __post_init__(self) -> None:
        if (self.kind == "succeeded") != (self.error is None) or (self.error is None) == (
            self.result_json is None
        ):
            raise ValueError("it has either a result or an error")
        if self.result_json is not None:
            _check_json(self.result_json)
        if self.error is not None and max(len(self.error.type), len(self.error.exception)) > MAX_NAME_CHARS:
            raise ValueError("the type of its error is too long")


class MadeProgress(_FromRunner, frozen=True):
    """Progress of an attempt."""

    context: dict[str, Any]
    percent: Measure = None
    step: Measure = None
    step_total: Measure = None
    phase: str | None = None
    message: str | None = None

    @property
    def progress(self) -> Progress:
        return Progress(self.percent, self.step, self.step_total, self.phase, self.message, self.context)


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """One question; `default` is the content of the answer when no client answers in time."""

    key: Name
    method: Name
    params: dict[str, Any]
    default: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        try:
            check_question(self.method, self.params)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

    @property
    def otherwise(self) -> tuple[Action, Any]:
        return ("cancel", None) if self.default is None else ("accept", self.default)


class Asks(_FromRunner, frozen=True):
    """Questions; the runner waits for the reply to this number."""

    number: Number
    requests: Annotated[list[Question], Meta(min_length=1, max_length=MAX_QUESTIONS)]
    timeout_s: Annotated[float, Meta(ge=0, le=LONGEST_TIMEOUT_S)] | None = None


class HasCheckpoint(_FromRunner, frozen=True):
    """A checkpoint; the runner waits for the reply to this number."""

    number: Number
    data_json: str

    def __post_init__(self) -> None:
        _check_json(self.data_json)


class HasArtifact(_FromRunner, frozen=True):
    """An artifact in the folder of its task; the runner waits for the reply to this number."""

    number: Number
    artifact_id: Annotated[str, Meta(pattern=r"^art_[0-9a-f]{32}\Z")]
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    kind: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    size_bytes: Number
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    path: str
    created_at: Number

    def __post_init__(self) -> None:
        if self.path != f"{self.task_id}/artifacts/{self.artifact_id}/{safe_file_name(self.name)}":
            raise ValueError("its path is not that of an artifact of the task")

    @property
    def artifact(self) -> Artifact:
        return Artifact(**{name: getattr(self, name) for name in Artifact.__struct_fields__})


RunnerMessage = Done | MadeProgress | Asks | HasCheckpoint | HasArtifact
_KINDS: dict[str, type[RunnerMessage]] = {
    "done": Done,
    "progress": MadeProgress,
    "ask": Asks,
    "checkpoint": HasCheckpoint,
    "artifact": HasArtifact,
}


class Hello(Struct, frozen=True, forbid_unknown_fields=True):
    """A runner is ready. `files` are those of the app, if the runner has imported it itself."""

    files: list[str] | None = None


class Broken(Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """The app cannot be imported: the reason, and the traceback."""

    broken: str
    details: str


def parse(kind: str, body: Mapping[str, Any], lease: Lease) -> RunnerMessage:
    """Return the message of a runner that was given this lease. Raises InvalidMessage."""
    if kind not in _KINDS:
        raise InvalidMessage(f"there is no message {kind[:80]!r}")
    message = _convert(kind, body, _KINDS[kind])
    if (message.task_id, message.attempt) != (lease.task_id, lease.attempt):
        raise InvalidMessage(
            f"it named attempt {message.attempt} of {message.task_id!r}, which it was not given"
        )
    return message


def parse_hello(body: Mapping[str, Any], imports: bool) -> list[str] | None:
    """Return the files of the app, if the runner `imports` it itself. Raises InvalidMessage."""
    files = _convert("hello", body, Hello).files
    if (files is not None) != imports:
        raise InvalidMessage("its hello names files without need, or no files")
    return files


def parse_broken(body: Mapping[str, Any]) -> Broken:
    """Return why a runner could not import the app. Raises InvalidMessage."""
    return _convert("broken", {name: json_text.storable(str(text)) for name, text in body.items()}, Broken)


def _convert(kind: str, body: Mapping[str, Any], to: type[T]) -> T:
    try:
        json_text.encode(body)  # which a store must accept: no NUL, no lone surrogate, not nested too deeply
        return msgspec.convert(body, to)
    except (msgspec.ValidationError, InvalidJson) as error:
        raise InvalidMessage(f"its {kind} is invalid: {error}"[:500]) from None


def _check_json(text: str) -> None:
    """Raise ValueError for text that is not JSON, or that a store cannot accept."""
    try:
        value = msgspec.json.decode(text)
        if "\\u0000" in text or text.count("[") + text.count("{") > json_text.MAX_DEPTH:
            json_text.encode(value)
    except (msgspec.DecodeError, RecursionError, InvalidJson) as error:
        raise ValueError(f"its JSON cannot be stored: {error}") from None


# -- between supervisor and zygote -------------------------------------------------------------------

#: A message is one packet.
LARGEST_PACKET = 1 << 16


class Fork(Struct, frozen=True, tag=True):
    """Fork a runner; the packet carries its descriptors."""

    name: str
    confinement: Confinement | None


class Kill(Struct, frozen=True, tag=True):
    """Kill a runner."""

    name: str


class SetDeadline(Struct, frozen=True, tag=True):
    """Renew the lease deadline."""

    until: int
    counts_sleep: bool


class Ready(Struct, frozen=True, tag=True):
    """The app is imported, from these files. The `warning` is for its author."""

    files: list[str]
    warning: str


class Forked(Struct, frozen=True, tag=True):
    name: str
    pid: int


class Exited(Struct, frozen=True, tag=True):
    """A runner has ended; `code` is minus a signal's number, or its exit code."""

    name: str
    code: int


ToZygote = Fork | Kill | SetDeadline
FromZygote = Ready | Broken | Forked | Exited
encode_packet = _encode
decode_to_zygote = msgspec.json.Decoder(ToZygote).decode
decode_from_zygote = msgspec.json.Decoder(FromZygote).decode


class LeaseDeadline:
    """Time until which runners may run; no other supervisor starts their tasks before (docs/decisions/0013).

    Each heartbeat that arrives renews it. Where others can be on hosts that stay awake while this one
    sleeps, its clock counts sleep.
    """

    def __init__(self, *, counts_sleep: bool, until: int = 0) -> None:
        clock = SystemClock()
        self.now_ms = clock.uptime_ms if counts_sleep else clock.steady_ms
        self.counts_sleep = counts_sleep
        self.until = until

    def left_ms(self) -> int:
        return max(0, self.until - self.now_ms())

    @property
    def has_passed(self) -> bool:
        return self.left_ms() == 0
