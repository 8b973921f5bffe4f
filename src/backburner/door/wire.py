"""Messages between a worker and the door: records as JSON, parsed as strictly as those of a runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from pydantic import TypeAdapter

from .. import json_text
from ..engines.local.runner_messages import parse
from ..engines.local.wire import NotAMessage
from ..errors import InvalidJson, InvalidRequest
from ..reports import (
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
from ..store import Lease, LeaseView
from ..task import Action, Artifact, InputRequest, Task, TaskHead, Worker

PATH = "/worker/v1"

LEASE, TASK, HEAD = TypeAdapter(Lease | None), TypeAdapter(Task), TypeAdapter(TaskHead)
VIEWS, _WORKERS = TypeAdapter(list[LeaseView]), TypeAdapter(list[Worker])
REQUESTS = TypeAdapter(list[InputRequest])
_CHANGES: dict[str, TypeAdapter[Any]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(Change)}
_LARGEST_NUMBER = 2**53
_LONGEST_NAME = 1000


def changes_out(changes: Sequence[Change]) -> list[Any]:
    return [
        [type(each).__name__, _CHANGES[type(each).__name__].dump_python(each, mode="json")]
        for each in changes
    ]


def changes_in(said: Any, lease: Lease) -> list[Change]:
    """Parse the changes that the holder of a lease reports, strictly. Raises InvalidRequest."""
    try:
        changes = [_CHANGES[kind].validate_python(body) for kind, body in said]
        for change in changes:
            _check(change, lease)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(reason=f"a worker reported what cannot be read: {error}") from None
    return changes


def file_in(lease: Lease, artifact_id: str, said: Mapping[str, str]) -> Artifact:
    """Parse the id, the size and the hash of a file that is to be sent. Raises InvalidRequest."""
    artifact = Artifact(
        artifact_id=artifact_id,
        task_id=lease.task_id,
        attempt=lease.attempt,
        name="file",
        kind="file",
        size_bytes=_number(said.get("size", "")),
        sha256=said.get("sha256", ""),
        path=f"{lease.task_id}/artifacts/{artifact_id}/file",
        created_at=0,
    )
    try:
        _check(Registered(artifact), lease)
    except NotAMessage as error:
        raise InvalidRequest(reason=f"a worker sent a file that cannot be kept: {error}") from None
    return artifact


def workers_out(workers: Sequence[Worker]) -> Any:
    return _WORKERS.dump_python(list(workers), mode="json")


def workers_in(said: Any) -> list[Worker]:
    """Parse a worker's description of itself. Raises InvalidRequest."""
    try:
        workers = _WORKERS.validate_python(said)
        for worker in workers:
            for text in (worker.worker_id, worker.host, worker.queue, worker.state):
                _check_text(text, _LONGEST_NAME)
            _check_numbers(worker.started_at, worker.last_heartbeat, worker.pid)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(reason=f"a worker described itself as it cannot be: {error}") from None
    return workers


def answers_in(said: Any) -> dict[str, tuple[str, Any]]:
    """Parse the answers that hold when no client has answered in time. Raises InvalidRequest."""
    try:
        answers = {str(key): (action, content) for key, (action, content) in said.items()}
        for action, content in answers.values():
            if action not in get_args(Action):
                raise ValueError(f"{action!r} is no action")
            json_text.encode(content)
    except (AttributeError, TypeError, ValueError, InvalidJson) as error:
        raise InvalidRequest(reason=f"a worker answered what cannot be read: {error}") from None
    return answers


def _number(text: str) -> int:
    """A whole number; -1, which none may be, for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 17 else -1


def _check(change: Change, lease: Lease) -> None:
    """Raise NotAMessage for a change that no supervisor makes of what a runner says."""
    match change:
        case Progressed(progress=progress):
            _parse("progress", lease, progress.to_dict())
        case Checkpointed(data_json=data_json):
            _parse("checkpoint", lease, {"number": 0, "data_json": data_json})
        case Registered(artifact=artifact):
            own = {each.name: getattr(artifact, each.name) for each in fields(artifact)}
            parse("artifact", {**own, "number": 0}, lease)  # it may name another task, which is refused
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
                _check_text(line.stream, _LONGEST_NAME)
                _check_text(line.level, _LONGEST_NAME)
                _check_text(line.message)
        case Started(pid=pid, timeout_at=timeout_at, at=at):
            _check_numbers(pid, timeout_at, at)
        case HandedBack(reason=reason):
            _check_text(reason)


def _parse_done(lease: Lease, kind: str, metrics: Mapping[str, Any] | None, **outcome: Any) -> None:
    _parse("done", lease, {"kind": kind, "spent": False, "metrics": dict(metrics or {}), **outcome})


def _parse(kind: str, lease: Lease, body: Mapping[str, Any]) -> None:
    parse(kind, {**body, "task_id": lease.task_id, "attempt": lease.attempt}, lease)


def _check_numbers(*numbers: int | None) -> None:
    for number in numbers:
        if number is not None and not 0 <= number <= _LARGEST_NUMBER:
            raise NotAMessage(f"{number} is out of range")


def _check_text(text: str, longest: int | None = None) -> None:
    if json_text.storable(text) != text or (longest is not None and len(text) > longest):
        raise NotAMessage("a text in it cannot be kept")
