"""From states to what each protocol calls them. No other place knows both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

from ..errors import BackburnerError, InvalidRequest, QueueFull, TaskNotFound
from ..lifecycle import State
from ..service import TaskStatus
from ..task import Task
from ..times import iso, span

_UNFINISHED = {
    State.QUEUED: "working",
    State.SCHEDULED: "working",
    State.RUNNING: "working",
    State.CANCEL_REQUESTED: "working",
    State.CANCELLING: "working",
    State.INPUT_REQUIRED: "input_required",
}
STATUS: Mapping[State, str] = MappingProxyType(
    {
        **_UNFINISHED,
        State.SUCCEEDED: "completed",
        State.FAILED: "failed",
        State.TIMED_OUT: "failed",
        State.CANCELLED: "cancelled",
    }
)
TWO_STAGE: Mapping[State, str] = MappingProxyType(
    {
        State.QUEUED: "queued",
        State.SCHEDULED: "queued",
        State.RUNNING: "running",
        State.CANCEL_REQUESTED: "running",
        State.CANCELLING: "running",
        State.INPUT_REQUIRED: "running",
        State.SUCCEEDED: "complete",
        State.FAILED: "complete",
        State.TIMED_OUT: "complete",
        State.CANCELLED: "complete",
    }
)

#: The same words for a task that is unknown, another owner's, or expired.
NOT_FOUND = "Failed to retrieve task: Task not found"


def tool_raised(task: Task) -> bool:
    """Whether the task failed because its tool did, and not because it could not be run."""
    return task.state is State.FAILED and task.error is not None and task.error.type == "tool_error"


def status_2026(task: Task) -> str:
    """At 2026-07-28 a tool's own error is a result like any other, so its task is `completed`."""
    return "completed" if tool_raised(task) else STATUS[task.state]


def status_2025(task: Task) -> str:
    return STATUS[task.state]


def present(status: TaskStatus) -> TaskStatus:
    """The same status, unless the task has expired: then it is gone for every client."""
    if status.task.state is State.EXPIRED:
        raise TaskNotFound(task_id=status.task_id)
    return status


# -- the task, as each revision shows it -----------------------------------------------------------


def task_2026(status: TaskStatus) -> dict[str, Any]:
    """A `Task` of the 2026-07-28 extension."""
    task = status.task
    shown = {
        "taskId": task.task_id,
        "status": status_2026(task),
        "createdAt": iso(task.submitted_at),
        "lastUpdatedAt": iso(task.updated_at),
        "ttlMs": ttl_ms(task),
        "pollIntervalMs": status.poll_after_ms,
    }
    return _with_message(shown, status)


def task_2025(status: TaskStatus) -> dict[str, Any]:
    """A `Task` of the 2025-11-25 revision."""
    task = status.task
    shown = {
        "taskId": task.task_id,
        "status": status_2025(task),
        "createdAt": iso(task.submitted_at),
        "lastUpdatedAt": iso(task.updated_at),
        "ttl": ttl_ms(task),
        "pollInterval": status.poll_after_ms,
    }
    return _with_message(shown, status)


def _with_message(shown: dict[str, Any], status: TaskStatus) -> dict[str, Any]:
    message = status_message(status)
    return {**shown, "statusMessage": message} if message else shown


def input_requests(status: TaskStatus) -> dict[str, Any]:
    """The open questions, as the requests that the client would have got."""
    return {
        question.key: {"method": question.method, "params": dict(question.params)}
        for question in status.questions
    }


def status_message(status: TaskStatus) -> str:
    """In a few words: what the task is at, how far it is, and how long it will take."""
    task = status.task
    if task.error is not None and task.finished:
        return task.error.message
    if task.cancel_requested and not task.finished:
        return "Being cancelled"
    if task.state is State.QUEUED:
        return "Queued" if status.position is None else f"Queued at position {status.position}"
    if task.state is State.INPUT_REQUIRED and status.questions:
        return str(status.questions[0].params.get("message") or "Waiting for an answer")
    if task.finished:
        return ""
    return progress_message(status)


def progress_message(status: TaskStatus) -> str:
    progress = status.task.progress
    percent = None if progress is None or progress.percent is None else f"{progress.percent:.0f}%"
    left = (
        None if status.eta_s is None or status.task.started_at is None else f"about {span(status.eta_s)} left"
    )
    phase = progress.phase if progress else None
    head = ", ".join(part for part in (phase, percent, left) if part)
    said = progress.message if progress else None
    return ": ".join(part for part in (head, said) if part)


# -- errors ----------------------------------------------------------------------------------------


def protocol_error(task: Task) -> dict[str, Any]:
    """The JSON-RPC error of a task that failed without a result of its tool."""
    error = task.error
    if error is not None and error.type == "protocol_error" and error.data:
        shown = {"code": error.data["code"], "message": error.data["message"]}
        return shown if error.data.get("data") is None else {**shown, "data": error.data["data"]}
    message = error.message if error else f"The task is {task.state}."
    return {
        "code": INTERNAL_ERROR,
        "message": message,
        "data": {"type": error.type if error else str(task.state)},
    }


def mcp_error(error: BackburnerError) -> MCPError:
    """An error of ours as the JSON-RPC error that a client gets."""
    if isinstance(error, TaskNotFound):
        return MCPError(INVALID_PARAMS, NOT_FOUND)
    code = INVALID_PARAMS if isinstance(error, InvalidRequest) else INTERNAL_ERROR
    data: dict[str, Any] = {"code": error.code}
    if isinstance(error, QueueFull):
        data["retry_after_s"] = error.details["retry_after_s"]
    return MCPError(code, str(error), data)


@contextmanager
def wire_errors() -> Iterator[None]:
    """Turn our errors that come out of the block into JSON-RPC errors."""
    try:
        yield
    except BackburnerError as error:
        raise mcp_error(error) from error


# -- times -----------------------------------------------------------------------------------------


def ttl_ms(task: Task) -> int | None:
    return None if task.ttl_s is None else int(task.ttl_s * 1000)
