"""Records as JSON: the keys are the records' own fields, and times are ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from ..core.lifecycle import State
from ..core.times import iso
from ..tools.results import whole_result

if TYPE_CHECKING:
    from ..core.task import Task, Worker
    from ..engines.health import Supervision
    from ..settings import Settings
    from ..store.artifacts import ArtifactReader
    from ..store.protocol import Store
    from ..store.webhooks import Delivery
    from ..tools.spec import Registry, ToolSpec
    from .tasks import LogPage, TaskResult, TaskStatus


_TIMES = ("ts", "last_heartbeat")
_INTERNAL = {"Task": {"seq", "inputs", "result", "launch"}, "Artifact": {"path"}}


def record(value: Any) -> Any:
    """A record, or what is made of records, as JSON values. A task is without its inputs and result."""
    if isinstance(value, Struct):
        hidden = _INTERNAL.get(type(value).__name__, ())
        return {name: _field(name, part) for name, part in asdict(value).items() if name not in hidden}
    if is_dataclass(value):
        return {entry.name: _field(entry.name, getattr(value, entry.name)) for entry in fields(value)}
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
    shown: dict[str, Any] = {**record(status.task), "attempt": status.task.tries}
    del shown["unstarted"]
    if shown["progress"] is not None:
        shown["progress"]["eta_s"] = status.eta_s
    shown["position"] = status.position
    shown |= _estimate(status)
    shown["eta_s"] = status.eta_s
    shown["poll_after_ms"] = None if status.task.finished else status.advised_poll_ms
    shown["questions"] = [
        {
            "key": one.key,
            "method": one.method,
            "message": one.params.get("message"),
            "schema": one.params.get("requestedSchema"),
        }
        for one in status.questions
    ]
    return shown


def masked_inputs(task: Task, tools: Registry | None) -> dict[str, Any] | None:
    """Return inputs with secrets masked; None if the tool, which declares its secrets, is unknown."""
    if not task.inputs:
        return task.inputs
    if tools is None or task.tool_name not in tools:
        return None
    return tools.get(task.tool_name).masked(task.inputs)


def submission_record(status: TaskStatus) -> dict[str, Any]:
    """Result of a submission."""
    task = status.task
    return {
        "task_id": task.task_id,
        "state": str(task.state),
        "queue": task.queue,
        "position": status.position,
        "submitted_at": iso(task.submitted_at),
        "poll_after_ms": status.advised_poll_ms,
        "created": status.created,
        **_estimate(status),
    }


def _estimate(status: TaskStatus) -> dict[str, Any]:
    return {"estimate_s": status.estimate.seconds, "estimate_source": str(status.estimate.source)}


def result_record(outcome: TaskResult, files: ArtifactReader) -> dict[str, Any]:
    task = outcome.task
    return {
        "task_id": task.task_id,
        "state": str(task.state),
        "result": value_of(outcome, files),
        "artifacts": record(outcome.artifacts),
        "error": None if task.error is None else task.error.to_dict(),
        "completed_at": iso(task.completed_at),
    }


def value_of(outcome: TaskResult, files: ArtifactReader) -> Any:
    """Return the whole result; for an attached server's `CallToolResult`, its content."""
    try:
        value = whole_result(outcome.task, outcome.artifacts, files)
    except OSError:
        value = outcome.task.result  # its files are on another host, or gone: how it begins is still known
    return contents_of(outcome.task, value)


def contents_of(task: Task, value: Any) -> Any:
    """Return the visible part of a result; for an attached server's `CallToolResult`, its content."""
    if task.result_kind == "value" or not isinstance(value, dict):
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


def queue_records(store: Store, settings: Settings, live: Sequence[Worker]) -> list[dict[str, Any]]:
    """Each queue that is configured here or has tasks: how many wait and run, and who works on it."""
    depths = {depth.queue: depth for depth in store.queue_depths()}
    paused = {one.queue: one for one in store.paused_queues()}
    working = [worker.queue for worker in live]
    configured = settings.queues
    return [
        {
            "queue": name,
            "queued": depths[name].queued if name in depths else 0,
            "running": depths[name].leased if name in depths else 0,
            "workers": working.count(name),
            "workers_on_this_host": configured[name].workers if name in configured else 0,
            "max_length": configured[name].max_length if name in configured else None,
            "paused_at": iso(paused[name].paused_at) if name in paused else None,
        }
        for name in [*configured, *sorted((depths.keys() | paused.keys()) - configured.keys())]
    ]


def state_record(counted: Mapping[State, int]) -> dict[str, int]:
    """Count the tasks in each state, including states without tasks."""
    return {str(state): counted.get(state, 0) for state in State}


def worker_records(store: Store, live: Sequence[Worker]) -> list[dict[str, Any]]:
    """Each worker that a store knows of, as it was last seen, and whether it is alive."""
    alive = {one.worker_id for one in live}
    return [{**record(one), "alive": one.worker_id in alive} for one in store.workers()]


def supervisor_record(found: Supervision) -> dict[str, Any]:
    """The supervisor of a host, and what is wrong with it."""
    return {**record(found.standing), "trouble": None if found.trouble is None else str(found.trouble)}


def delivery_record(one: Delivery) -> dict[str, Any]:
    """A message to an endpoint, without its text and its path, which is often a secret."""
    return {
        "webhook_id": one.delivery_id,
        "task_id": one.task_id,
        "owner": one.owner,
        "endpoint": one.endpoint,
        "attempts": one.attempts,
        "created_at": iso(one.created_at),
        "next_at": iso(one.due_at),
        "given_up": one.due_at is None,
        "last_error": one.last_error,
    }


def tool_record(spec: ToolSpec, settings: Settings) -> dict[str, Any]:
    return {
        "tool_name": spec.name,
        "description": spec.description,
        "queue": spec.queue_in(settings),
        "max_runtime_s": spec.timeout_s or settings.limits.max_runtime_s,
        "max_attempts": spec.retry.max_attempts,
        "task": spec.task,
        "answer": spec.answer_in(settings),
        "input_schema": spec.input_schema,
        "output_schema": spec.output_schema,
    }
