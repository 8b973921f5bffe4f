"""What a runner may say of its attempt, parsed strictly.

A runner shares its process with the tool, so whatever comes from it is a stranger's word: it names the
task and the attempt that it speaks for, it has the form that is written here, and it fits into a store.
Anything else raises NotAMessage.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ... import json_text
from ...answers import check_question
from ...context import LONGEST_TIMEOUT_S, MAX_NAME_CHARS, MAX_QUESTIONS
from ...errors import InvalidJson, InvalidRequest
from ...folders import safe_file_name
from ...store import Lease
from ...task import Action, Artifact, Progress, TaskError
from .wire import NotAMessage

_MAX_NUMBER = 2**53
_MAX_MEASURE = sys.float_info.max
_METRICS = ("wall_s", "cpu_s", "max_rss_mb")
_KINDS = ("succeeded", "failed", "cancelled")
_ARTIFACT_ID = re.compile(r"art_[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Done:
    """Its last word. `spent` says that its process had better not have another task, `retryable` that the
    tool's Retry covers its failure."""

    kind: Literal["succeeded", "failed", "cancelled"]
    result_json: str
    error: TaskError | None
    metrics: Mapping[str, float]
    spent: bool
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class MadeProgress:
    progress: Progress


@dataclass(frozen=True, slots=True)
class Question:
    """`otherwise` is the answer when nobody gives one in time."""

    key: str
    method: str
    params: Mapping[str, Any]
    otherwise: tuple[Action, Any]


@dataclass(frozen=True, slots=True)
class Asks:
    """It waits for answers, under this number, and for so long."""

    number: int
    questions: tuple[Question, ...]
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class HasCheckpoint:
    """It waits, under this number, until the checkpoint is on disk."""

    number: int
    data_json: str


@dataclass(frozen=True, slots=True)
class HasArtifact:
    """It waits, under this number, until the artifact is known."""

    number: int
    artifact: Artifact


RunnerMessage = Done | MadeProgress | Asks | HasCheckpoint | HasArtifact


def parse(kind: str, body: Mapping[str, Any], lease: Lease) -> RunnerMessage:
    """The message, if a runner that was given this lease may say it. Raises NotAMessage."""
    words = _Words(kind, body)
    spoken_for = words.take("task_id"), words.take("attempt")
    if spoken_for != (lease.task_id, lease.attempt):
        raise NotAMessage(
            f"it spoke for attempt {spoken_for[1]!r} of {spoken_for[0]!r}, which it was not given"
        )
    match kind:
        case "done":
            message: RunnerMessage = _done(words)
        case "progress":
            message = MadeProgress(_progress(words))
        case "ask":
            message = _asks(words)
        case "checkpoint":
            message = HasCheckpoint(words.number("number"), words.json_value("data_json"))
        case "artifact":
            message = _artifact(words, lease)
        case _:
            raise NotAMessage(f"there is no message {kind[:80]!r}")
    words.expect_no_more()
    return message


def parse_hello(body: Mapping[str, Any], imports: bool) -> list[str] | None:
    """What a runner says when it is ready: nothing, or the files of the app, if it `imports` that itself."""
    words = _Words("hello", body)
    files = words.take("files") if imports else None
    if imports and not (isinstance(files, list) and all(isinstance(file, str) for file in files)):
        raise words.wrong("files", "a list of files")
    words.expect_no_more()
    return files


def parse_broken(body: Mapping[str, Any]) -> tuple[str, str]:
    """Why a runner that imports the app itself could not, and the traceback."""
    words = _Words("broken", {name: json_text.storable(str(text)) for name, text in body.items()})
    said = words.text("broken"), words.text("details")
    words.expect_no_more()
    return said


class _Words:
    """The parts of a message; each is checked as it is taken."""

    def __init__(self, kind: str, body: Mapping[str, Any]) -> None:
        self._kind = kind
        self._left = dict(body)

    def wrong(self, name: str, what: str) -> NotAMessage:
        return NotAMessage(f"{name} of its {self._kind[:80]} is not {what}")

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def text(self, name: str, *, longest: int | None = None) -> str:
        """A text that every store can keep."""
        value = self.take(name)
        if not isinstance(value, str) or (longest is not None and len(value) > longest):
            raise self.wrong(name, "a text" if longest is None else f"a text of at most {longest} characters")
        if json_text.storable(value) != value:
            raise self.wrong(name, "a text that can be kept")
        return value

    def optional_text(self, name: str) -> str | None:
        if self._left.get(name) is not None:
            return self.text(name)
        self.take(name)
        return None

    def json_value(self, name: str) -> str:
        """A JSON value as text."""
        text = self.text(name)
        try:
            json_text.encode(json.loads(text), name)
        except (ValueError, RecursionError, InvalidJson):
            raise self.wrong(name, "JSON that can be kept") from None
        return text

    def json_object(self, name: str) -> dict[str, Any]:
        value = self.take(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        try:
            json_text.encode(value, name)
        except InvalidJson:
            raise self.wrong(name, "an object that can be kept") from None
        return value

    def optional_object(self, name: str) -> dict[str, Any] | None:
        if self._left.get(name) is not None:
            return self.json_object(name)
        self.take(name)
        return None

    def number(self, name: str) -> int:
        """A whole number that every store can keep, from 0 on."""
        value = self.take(name)
        if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
            raise self.wrong(name, "a whole number")
        return value

    def measure(self, name: str) -> float | None:
        """A finite number, or nothing."""
        value = self.take(name)
        if value is None:
            return None
        if type(value) not in (int, float) or not -_MAX_MEASURE <= value <= _MAX_MEASURE:
            raise self.wrong(name, "a number")
        return cast(float, value)

    def expect_no_more(self) -> None:
        if self._left:
            raise NotAMessage(f"its {self._kind[:80]} has parts too many: {', '.join(self._left)[:200]}")


def _done(words: _Words) -> Done:
    kind, spent = words.take("kind"), words.take("spent")
    if kind not in _KINDS or type(spent) is not bool:
        raise words.wrong("kind or spent", "there")
    metrics = words.json_object("metrics")
    for name, value in metrics.items():
        if name not in _METRICS or type(value) not in (int, float) or not 0 <= value <= _MAX_NUMBER:
            raise words.wrong("metrics", "what can be measured")
    if kind == "succeeded":
        return Done(kind, words.json_value("result_json"), None, metrics, spent)
    retryable = words.take("retryable") or False
    if type(retryable) is not bool:
        raise words.wrong("retryable", "true or false")
    return Done(kind, "", _error(words.json_object("error")), metrics, spent, retryable)


def _error(parts: dict[str, Any]) -> TaskError:
    words = _Words("error", {"exception": "", "details": "", **parts})
    data = words.take("data")
    error = TaskError(
        type=words.text("type", longest=MAX_NAME_CHARS),
        message=words.text("message"),
        exception=words.text("exception", longest=MAX_NAME_CHARS),
        details=words.text("details"),
        data=data,
    )
    if data is not None and not isinstance(data, dict):
        raise words.wrong("data", "an object")
    words.expect_no_more()
    return error


def _progress(words: _Words) -> Progress:
    return Progress(
        percent=words.measure("percent"),
        step=words.measure("step"),
        step_total=words.measure("step_total"),
        phase=words.optional_text("phase"),
        message=words.optional_text("message"),
        context=words.json_object("context"),
    )


def _asks(words: _Words) -> Asks:
    asked = words.take("requests")
    if not isinstance(asked, list) or not 1 <= len(asked) <= MAX_QUESTIONS:
        raise words.wrong("requests", f"a list of at most {MAX_QUESTIONS}")
    questions = []
    for each in asked:
        if not isinstance(each, dict):
            raise words.wrong("requests", "a list of objects")
        parts = _Words("question", each)
        key = parts.text("key", longest=MAX_NAME_CHARS)
        method = parts.text("method", longest=MAX_NAME_CHARS)
        params = parts.json_object("params")
        try:
            check_question(method, params)
        except InvalidRequest:
            raise words.wrong("a request", "one that can be shown") from None
        default = parts.optional_object("default")
        otherwise: tuple[Action, Any] = ("cancel", None) if default is None else ("accept", default)
        questions.append(Question(key, method, params, otherwise))
        parts.expect_no_more()
    timeout_s = words.measure("timeout_s")
    if timeout_s is not None and not 0 <= timeout_s <= LONGEST_TIMEOUT_S:
        raise words.wrong("timeout_s", "a time that can pass")
    return Asks(words.number("number"), tuple(questions), timeout_s)


def _artifact(words: _Words, lease: Lease) -> HasArtifact:
    """An artifact is kept in the folder of its own task and nowhere else."""
    artifact = Artifact(
        artifact_id=words.text("artifact_id"),
        task_id=lease.task_id,
        attempt=lease.attempt,
        name=words.text("name", longest=MAX_NAME_CHARS),
        kind=words.text("kind", longest=MAX_NAME_CHARS),
        size_bytes=words.number("size_bytes"),
        sha256=words.text("sha256"),
        path=words.text("path"),
        created_at=words.number("created_at"),
    )
    place = f"{lease.task_id}/artifacts/{artifact.artifact_id}/{safe_file_name(artifact.name)}"
    if not (
        artifact.name
        and artifact.kind
        and _ARTIFACT_ID.fullmatch(artifact.artifact_id)
        and _SHA256.fullmatch(artifact.sha256)
        and artifact.path == place
    ):
        raise words.wrong("a part", "what it must be")
    return HasArtifact(words.number("number"), artifact)
