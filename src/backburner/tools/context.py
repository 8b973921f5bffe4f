"""TaskContext: what a running tool can say about itself, ask, keep and find out."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import itertools
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from msgspec.structs import asdict

from ..core import json_text
from ..core.files import make_private, outgoing_file, safe_file_name, scratch_folder
from ..core.questions import check_question
from ..core.requests import check_size, check_text
from ..core.task import Answer, Artifact, Caller
from ..core.times import duration_s, moment
from ..errors import InvalidRequest, TaskCancelled

#: How much a task may ask at once, and how long the names are that it gives.
MAX_QUESTIONS, MAX_NAME_CHARS = 100, 1000
#: How long a question may wait for its answer before its default counts.
LONGEST_TIMEOUT_S = 1e9
#: A checkpoint passes through the supervisor's memory and the store: more belongs in an artifact.
MAX_CHECKPOINT_BYTES = 16 * 1024 * 1024
_CHUNK = 1 << 20


class Channel(Protocol):
    """Connection of a context to its supervisor."""

    def log(self, level: str, message: str, stream: str = "log") -> None:
        """Write a line to the task's log."""
        ...

    def request(self, kind: str, body: dict[str, Any]) -> Any:
        """Say something and wait for the reply: it is on disk then. Raises TaskCancelled while asking."""
        ...

    def progress(self, body: dict[str, Any]) -> None:
        """Keep the latest progress; it is sent at most ten times a second."""
        ...


@dataclass
class TaskContext:
    """Access to the task for a tool that has a parameter annotated with it. Safe to use from any thread.

    `answers` holds the client's answers to the tool's `ask_first` questions, `caller` the authenticated
    caller, and `meta` what the submitter gave. `traceparent` and `tracestate` are the W3C trace of the
    attempt. The execution sets `cancel_flag` when the task is cancelled.
    """

    task_id: str
    attempt: int
    owner: str
    tool_name: str
    checkpoint_data: Any
    deadline: datetime | None
    tags: tuple[str, ...]
    meta: Mapping[str, Any]
    answers: Mapping[str, Answer]
    caller: Caller | None
    channel: InitVar[Channel]
    folder: InitVar[Path]
    cancel_flag: InitVar[threading.Event]
    traceparent: str | None = None
    tracestate: str | None = None

    def __post_init__(self, channel: Channel, folder: Path, cancel_flag: threading.Event) -> None:
        self._channel = channel
        self._folder = folder
        self._cancelled = cancel_flag
        self._questions = itertools.count(1)
        self._percent: float | None = None

    @cached_property
    def scratch(self) -> Path:
        """A private folder for this attempt; it is removed when the attempt is over."""
        folder = scratch_folder(self._folder)
        make_private(folder)
        return folder

    # -- progress and logs

    def progress(
        self,
        current: float | None = None,
        total: float | None = None,
        *,
        percent: float | None = None,
        phase: str | None = None,
        message: str | None = None,
        **context: Any,
    ) -> None:
        """Say how far the work is: `current` of `total`, or `percent`. It never goes back.

        Cheap enough for a hot loop: only the latest is sent, at most ten times a second.
        """
        if percent is None and current is not None and total:
            with contextlib.suppress(OverflowError):
                percent = 100.0 * current / total
        if percent is not None:
            before = self._percent or 0.0
            self._percent = round(min(percent, 100.0), 2) if percent > before else before  # also for NaN
        self._channel.progress(
            {
                "percent": self._percent,
                "step": current,
                "step_total": total,
                "phase": phase,
                "message": message,
                "context": context,
            }
        )

    def log(self, message: str, level: str = "info", *, stream: str = "log") -> None:
        """Write a line to the task's log. `stream` is `log`, or begins with `message`."""
        self._channel.log(level, message, stream)

    # -- what to keep

    def artifact(
        self, source: str | os.PathLike[str] | bytes, name: str | None = None, kind: str = "file"
    ) -> Artifact:
        """Keep a file, or bytes, as an artifact of the task; it is immutable from now on.

        A relative path is looked for in the working folder and then in `scratch`. Raises
        FileNotFoundError, InvalidRequest for bytes without a name and for names that are no text, and
        ArtifactStorageError where the storage that is to keep it cannot: then it is not there at all.
        """
        if isinstance(source, bytes):
            if not name:
                raise InvalidRequest(reason="an artifact made of bytes needs a name")
            path = None
        else:
            path = self._find(Path(source))
            name = name or path.name
        check_text("an artifact's name", name, MAX_NAME_CHARS)
        check_text("an artifact's kind", kind, MAX_NAME_CHARS)
        artifact_id = "art_" + secrets.token_hex(16)
        outgoing = outgoing_file(self._folder, artifact_id)
        make_private(outgoing.parent)
        try:
            size, digest = _write(source if path is None else path, outgoing)
            artifact = Artifact(
                artifact_id=artifact_id,
                task_id=self.task_id,
                attempt=self.attempt,
                name=name,
                kind=kind,
                size_bytes=size,
                sha256=digest,
                path=f"{self.task_id}/artifacts/{artifact_id}/{safe_file_name(name)}",
                created_at=time.time_ns() // 1_000_000,
            )
            self._channel.request("artifact", asdict(artifact))
        finally:
            outgoing.unlink(missing_ok=True)
        return artifact

    def _find(self, path: Path) -> Path:
        for candidate in (path, self.scratch / path):
            if candidate.is_file():
                return candidate
        raise FileNotFoundError(f"there is no file {path} to keep as an artifact")

    def checkpoint(self, data: Any) -> None:
        """Keep `data` (JSON): the next attempt finds it in `checkpoint_data`. On disk when this returns.

        Raises InvalidJson, and TooLarge above `MAX_CHECKPOINT_BYTES`: keep what is
        large in a file, as an artifact.
        """
        text = json_text.encode(data, "The checkpoint")
        check_size("The checkpoint", text, MAX_CHECKPOINT_BYTES)
        self._channel.request("checkpoint", {"data_json": text})

    # -- questions

    def ask(
        self,
        message: str,
        schema: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        default: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Ask the client, and wait. The task is `input_required` until it answers.

        `schema` is the JSON schema of the answer: an object with plain properties. Without an answer
        within `timeout` (seconds, or a text such as "10m"), `default` counts as the answer; without one
        the question is dismissed (`action` is "cancel"). Raises TaskCancelled when the task is cancelled
        while it waits, and InvalidRequest for a message that is not text, a schema that is none, and a
        default that does not fit it.
        """
        defaults = None if default is None else {"answer": default}
        return self.ask_all({"answer": (message, schema)}, timeout=timeout, defaults=defaults)["answer"]

    def ask_all(
        self,
        questions: Mapping[str, tuple[str, Mapping[str, Any] | None]],
        *,
        timeout: float | str | None = None,
        defaults: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, Answer]:
        """Ask several things at once and wait for all the answers: `{key: (message, schema)}`.

        `timeout` is for all of them together; `defaults` has those of some or all, by key.
        """
        requests = {
            key: ("elicitation/create", elicitation(message, schema))
            for key, (message, schema) in questions.items()
        }
        timeout_s = None if timeout is None else duration_s(timeout, "timeout")
        _check_defaults(requests, timeout_s, defaults or {})
        return {
            key: Answer(reply["action"], reply.get("content") if reply["action"] == "accept" else None)
            for key, reply in self.request_all(requests, timeout_s, defaults or {}).items()
        }

    def request_all(
        self,
        requests: Mapping[str, tuple[str, Mapping[str, Any]]],
        timeout_s: float | None = None,
        defaults: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Send MCP requests to the client: `{key: (method, params)}`. Replies are `{action, content}`.

        Without an answer within `timeout_s`, a default is accepted, or the request is dismissed.
        Raises InvalidRequest for a request that a client could not show.
        """
        if not 1 <= len(requests) <= MAX_QUESTIONS:
            raise InvalidRequest(reason=f"from 1 to {MAX_QUESTIONS} questions can be asked at once")
        for method, params in requests.values():
            check_question(method, params)
        number = next(self._questions)  # of this thread alone, whoever else asks now
        unique = {key: f"{key}-{self.attempt}-{number}" for key in requests}
        for key in unique.values():
            check_text("a question's key", key, MAX_NAME_CHARS)
        body: list[dict[str, Any]] = [
            {"key": unique[key], "method": method, "params": dict(params)}
            for key, (method, params) in requests.items()
        ]
        for each, key in zip(body, requests, strict=True):
            if defaults and key in defaults:
                each["default"] = dict(defaults[key])
        json_text.encode(body, "The question")
        replies = self._channel.request("ask", {"requests": body, "timeout_s": timeout_s})
        return {key: replies[unique[key]] for key in requests}

    async def ask_async(
        self,
        message: str,
        schema: Mapping[str, Any] | None = None,
        *,
        timeout: float | str | None = None,
        default: Mapping[str, Any] | None = None,
    ) -> Answer:
        """As `ask`, for async tools."""
        return await asyncio.to_thread(self.ask, message, schema, timeout=timeout, default=default)

    async def ask_all_async(
        self,
        questions: Mapping[str, tuple[str, Mapping[str, Any] | None]],
        *,
        timeout: float | str | None = None,
        defaults: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, Answer]:
        """As `ask_all`, for async tools."""
        return await asyncio.to_thread(self.ask_all, questions, timeout=timeout, defaults=defaults)

    # -- cancelling

    @property
    def cancelled(self) -> bool:
        """True once the task is cancelled. A tool that checks it can clean up before it ends."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled if the task is cancelled."""
        if self.cancelled:
            raise TaskCancelled

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Sleep for so long, or until the task is cancelled; whether it was."""
        return self._cancelled.wait(timeout_s)


def elicitation(message: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of an `elicitation/create` request. Raises InvalidRequest."""
    requested = schema or {"type": "object", "properties": {}}
    params = {"mode": "form", "message": message, "requestedSchema": requested}
    check_question("elicitation/create", params)
    return {**params, "requestedSchema": dict(requested)}


def _check_defaults(
    requests: Mapping[str, tuple[str, Mapping[str, Any]]],
    timeout_s: float | None,
    defaults: Mapping[str, Mapping[str, Any]],
) -> None:
    if defaults and timeout_s is None:
        raise InvalidRequest(reason="a default is for questions with a timeout: say for how long to wait")
    if timeout_s is not None and timeout_s > LONGEST_TIMEOUT_S:
        raise InvalidRequest(reason=f"a timeout is at most {LONGEST_TIMEOUT_S:g} s; leave it out to wait on")
    for key, default in defaults.items():
        from ..core.schema import SchemaCheck

        if key not in requests:
            raise InvalidRequest(reason=f"there is a default for {key!r}, which is not asked")
        broken = SchemaCheck(requests[key][1]["requestedSchema"]).complaint(dict(default))
        if broken is not None:
            reason = f"the default of {key!r} does not fit its schema: {broken.message}"
            raise InvalidRequest(reason=reason)


def deadline_of(timeout_at: int | None) -> datetime | None:
    return None if timeout_at is None else moment(timeout_at)


def _write(source: bytes | str | os.PathLike[str], target: Path) -> tuple[int, str]:
    """Copy bytes, or a file, to a new file; its size and its SHA-256. The keeper syncs its own copy."""
    digest, size = hashlib.sha256(), 0
    with target.open("xb") as out, _opened(source) as data:
        while chunk := data.read(_CHUNK):
            digest.update(chunk)
            size += out.write(chunk)
    return size, digest.hexdigest()


def _opened(source: bytes | str | os.PathLike[str]) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb")
