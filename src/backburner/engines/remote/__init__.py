"""Worker API for workers without the store's password: tokens and messages.

A worker with a token for one task runs it through a server (`http.worker_door`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from itsdangerous import BadData, URLSafeSerializer
from msgspec import convert
from msgspec.structs import asdict

from ...core import json_text
from ...core.reports import (
    Asked,
    Cancelled,
    Change,
    Checkpointed,
    Failed,
    HandedBack,
    Logged,
    Progressed,
    Registered,
    Started,
    Succeeded,
    TimedOut,
)
from ...core.task import Action, Artifact, Worker
from ...errors import InvalidJson, InvalidRequest
from ...store.protocol import Lease
from ..local.processes.messages import InvalidMessage, parse

PATH = "/worker/v1"


@dataclass(frozen=True, slots=True)
class TaskToken:
    """The right to run one task as one supervisor, until a time in milliseconds."""

    task_id: str
    supervisor_id: str
    until: int


class TaskTokens:
    """Makes and reads tokens, which are signed with the store's secret."""

    def __init__(self, secret: bytes) -> None:
        self._signer: Any = URLSafeSerializer(secret, salt="backburner.worker")

    def make(self, task_id: str, valid_s: float) -> str:
        supervisor_id = f"sup_{secrets.token_hex(4)}_{secrets.token_hex(4)}"
        return str(self._signer.dumps([task_id, supervisor_id, int((time.time() + valid_s) * 1000)]))

    def read(self, text: str) -> TaskToken | None:
        """Return None for a token that is invalid or has expired."""
        try:
            token = TaskToken(*self._signer.loads(text))
        except (BadData, TypeError, ValueError):
            return None
        return token if token.until > time.time() * 1000 else None


_MAX_NUMBER = 2**53
_MAX_NAME = 1000


def parse_changes(body: Any, lease: Lease) -> list[Change]:
    """Parse the changes that the holder of a lease reports. Raises InvalidRequest."""
    try:
        changes = convert(body, list[Change])
        for change in changes:
            _check(change, lease)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(reason=f"the worker's report is invalid: {error}") from None
    return changes


def parse_file(lease: Lease, artifact_id: str, params: Mapping[str, str]) -> Artifact:
    """Parse the id, the size and the hash of a file that a worker will send. Raises InvalidRequest."""
    size = params.get("size", "")
    artifact = Artifact(
        artifact_id=artifact_id,
        task_id=lease.task_id,
        attempt=lease.attempt,
        name="file",
        kind="file",
        size_bytes=int(size) if size.isascii() and size.isdigit() and len(size) < 17 else -1,
        sha256=params.get("sha256", ""),
        path=f"{lease.task_id}/artifacts/{artifact_id}/file",
        created_at=0,
    )
    try:
        _check(Registered(artifact), lease)
    except InvalidMessage as error:
        raise InvalidRequest(reason=f"the worker's file is invalid: {error}") from None
    return artifact


def parse_workers(body: Any) -> list[Worker]:
    """Parse a supervisor's description of its workers. Raises InvalidRequest."""
    try:
        workers = convert(body, list[Worker])
        for worker in workers:
            for text in (worker.worker_id, worker.host, worker.queue, worker.state):
                _check_text(text, _MAX_NAME)
            _check_numbers(worker.started_at, worker.last_heartbeat, worker.pid)
    except ValueError as error:
        raise InvalidRequest(reason=f"the description of a worker is invalid: {error}") from None
    return workers


def parse_answers(body: Any) -> dict[str, tuple[str, Any]]:
    """Parse the default answers to questions that timed out. Raises InvalidRequest."""
    try:
        answers = {str(key): (action, content) for key, (action, content) in body.items()}
        for action, content in answers.values():
            if action not in get_args(Action):
                raise ValueError(f"{action!r} is no action")
            json_text.encode(content)
    except (AttributeError, TypeError, ValueError, InvalidJson) as error:
        raise InvalidRequest(reason=f"the worker's answers are invalid: {error}") from None
    return answers


def _check(change: Change, lease: Lease) -> None:
    """Raise InvalidMessage for a change that no supervisor would make of a runner's messages."""
    match change:
        case Progressed(progress=progress):
            _parse("progress", lease, progress.to_dict())
        case Checkpointed(data_json=data_json):
            _parse("checkpoint", lease, {"number": 0, "data_json": data_json})
        case Registered(artifact=artifact):
            parse("artifact", {**asdict(artifact), "number": 0}, lease)  # refused if it names another task
        case Asked(requests=requests):
            asked = [{"key": one.key, "method": one.method, "params": dict(one.params)} for one in requests]
            _parse("ask", lease, {"number": 0, "requests": asked, "timeout_s": None})
            _check_numbers(*(one.asked_at for one in requests))
        case Succeeded(result_json=result_json, metrics=metrics):
            _parse_done(lease, "succeeded", metrics, result_json=result_json)
        case Failed(error=error, metrics=metrics) | TimedOut(error=error, metrics=metrics):
            _parse_done(lease, "failed", metrics, error=error.to_dict())
        case Cancelled(error=error, metrics=metrics):
            _parse_done(lease, "cancelled", metrics, error=error.to_dict())
        case Logged(lines=lines):
            for line in lines:
                _check_numbers(line.seq, line.ts)
                _check_text(line.stream, _MAX_NAME)
                _check_text(line.level, _MAX_NAME)
                _check_text(line.message)
        case Started(pid=pid, timeout_at=timeout_at, at=at):
            _check_numbers(pid, timeout_at, at)
        case HandedBack(reason=reason):
            _check_text(reason)


def _parse_done(lease: Lease, kind: str, metrics: Mapping[str, Any] | None, **outcome: Any) -> None:
    _parse("done", lease, {"kind": kind, "changed": False, "metrics": dict(metrics or {}), **outcome})


def _parse(kind: str, lease: Lease, body: Mapping[str, Any]) -> None:
    parse(kind, {**body, "task_id": lease.task_id, "attempt": lease.attempt}, lease)


def _check_numbers(*numbers: int | None) -> None:
    for number in numbers:
        if number is not None and not 0 <= number <= _MAX_NUMBER:
            raise InvalidMessage(f"{number} is out of range")


def _check_text(text: str, longest: int | None = None) -> None:
    if json_text.storable(text) != text or (longest is not None and len(text) > longest):
        raise InvalidMessage("a text in it cannot be stored")
