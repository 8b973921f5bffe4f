"""Records as JSON: the keys are the records' own fields, and times are ISO 8601 in UTC."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..result_parts import whole_result
from ..times import iso

if TYPE_CHECKING:
    from ..artifacts import ArtifactStore
    from ..service import LogPage, TaskResult, TaskStatus

_TIMES = ("ts", "last_heartbeat")
_INTERNAL = {"Task": {"seq", "inputs", "result", "launch"}, "Artifact": {"path"}}


def record(value: Any) -> Any:
    """A record, or what is made of records, as JSON values. A task is without its inputs and result."""
    if dataclasses.is_dataclass(value):
        kept = [
            entry.name
            for entry in dataclasses.fields(value)
            if entry.name not in _INTERNAL.get(type(value).__name__, ())
        ]
        return {name: _field(name, getattr(value, name)) for name in kept}
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): record(entry) for key, entry in value.items()}
    if isinstance(value, Sequence | frozenset) and not isinstance(value, str):
        return [record(entry) for entry in value]
    return value


def _field(name: str, value: Any) -> Any:
    is_time = (name.endswith("_at") or name in _TIMES) and isinstance(value, int)
    return iso(value) if is_time else record(value)


def status_record(status: TaskStatus) -> dict[str, Any]:
    """A task and what is computed about it."""
    shown: dict[str, Any] = record(status.task)
    if shown["progress"] is not None:
        shown["progress"]["eta_s"] = status.eta_s
    shown["position"] = status.position
    shown |= _estimate(status)
    shown["eta_s"] = status.eta_s
    shown["poll_after_ms"] = None if status.task.finished else status.poll_after_ms
    shown["questions"] = [
        {"key": one.key, "message": one.params.get("message"), "schema": one.params.get("requestedSchema")}
        for one in status.questions
    ]
    return shown


def submission_record(status: TaskStatus) -> dict[str, Any]:
    """What became of a submit."""
    task = status.task
    return {
        "task_id": task.task_id,
        "state": str(task.state),
        "queue": task.queue,
        "position": status.position,
        "submitted_at": iso(task.submitted_at),
        "poll_after_ms": status.poll_after_ms,
        "created": status.created,
        **_estimate(status),
    }


def _estimate(status: TaskStatus) -> dict[str, Any]:
    return {"estimate_s": status.estimate.seconds, "estimate_source": str(status.estimate.source)}


def result_record(outcome: TaskResult, files: ArtifactStore) -> dict[str, Any]:
    task = outcome.task
    return {
        "task_id": task.task_id,
        "state": str(task.state),
        "result": value_of(outcome, files),
        "artifacts": record(outcome.artifacts),
        "error": None if task.error is None else task.error.to_dict(),
        "completed_at": iso(task.completed_at),
    }


def value_of(outcome: TaskResult, files: ArtifactStore) -> Any:
    """What the tool returned, whole; of an attached server's `CallToolResult`, its contents."""
    try:
        value = whole_result(outcome.task, outcome.artifacts, files)
    except OSError:
        value = outcome.task.result  # its files are on another host, or gone: how it begins is still known
    if outcome.task.result_kind == "value" or not isinstance(value, dict):
        return value
    if value.get("structuredContent") is not None:
        return value["structuredContent"]
    content = value.get("content") or []
    texts = [block.get("text") for block in content if block.get("type") == "text"]
    return "\n".join(texts) if len(texts) == len(content) else content


def log_record(task_id: str, page: LogPage) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "lines": record(page.lines),
        "next_cursor": page.next_cursor,
        "truncated": page.truncated,
    }
