"""Names, models and status words of the 2025-11-25 tasks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mcp_types as types

from ....core.lifecycle import State
from ....core.task import Task
from ....core.times import LONGEST_S, iso
from ....service.tasks import TaskStatus
from ...open_calls import mark_joined
from ...updates import status_message

#: Protocol revision with these tasks, and name of the dialect.
NAME = "2025-11-25"
GET, RESULT, LIST, CANCEL = "tasks/get", "tasks/result", "tasks/list", "tasks/cancel"
NEWS = "notifications/tasks/status"
RELATED_TASK = "io.modelcontextprotocol/related-task"
IMMEDIATE_RESPONSE = "io.modelcontextprotocol/model-immediate-response"
CAPABILITY: Mapping[str, Any] = MappingProxyType(
    {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
)

STATUS: Mapping[State, str] = MappingProxyType(
    {
        **dict.fromkeys((State.QUEUED, State.SCHEDULED, State.RUNNING), "working"),
        **dict.fromkeys((State.CANCEL_REQUESTED, State.CANCELLING), "working"),
        State.INPUT_REQUIRED: "input_required",
        State.SUCCEEDED: "completed",
        State.FAILED: "failed",
        State.TIMED_OUT: "failed",
        State.CANCELLED: "cancelled",
    }
)


class TaskIdParams(types.RequestParams):
    task_id: str


class ListParams(types.PaginatedRequestParams):
    pass


# -- from the server -------------------------------------------------------------------------------


def status_of(task: Task) -> str:
    return STATUS[task.state]


def task_shown(status: TaskStatus) -> dict[str, Any]:
    """Return a `Task`."""
    task = status.task
    shown = {
        "taskId": task.task_id,
        "status": status_of(task),
        "createdAt": iso(task.submitted_at),
        "lastUpdatedAt": iso(task.updated_at),
        "ttl": task.retention_ms,
        "pollInterval": status.poll_after_ms,
    }
    message = status_message(status)
    return {**shown, "statusMessage": message} if message else shown


def created(status: TaskStatus) -> dict[str, Any]:
    """Return a `CreateTaskResult`, with text for a model that continues at once."""
    words = f"{status.task.tool_name} is working on it as task {status.task_id}; the result will follow."
    return mark_joined({"task": task_shown(status), "_meta": {IMMEDIATE_RESPONSE: words}}, status, typed=True)


def related(task_id: str) -> dict[str, Any]:
    """Return the `_meta` of a message about a task."""
    return {RELATED_TASK: {"taskId": task_id}}


def asked_for(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the `task` parameter of a call; None without one."""
    task: Mapping[str, Any] | None = params.get("task")
    return task


def ttl_s(asked: Mapping[str, Any]) -> float | None:
    """Return the requested time to live, capped at the longest possible."""
    ttl = asked.get("ttl")
    return None if ttl is None else min(ttl, LONGEST_S * 1000) / 1000


def described(tool: dict[str, Any], support: str) -> dict[str, Any]:
    """Return a listed tool with its task support."""
    return {**tool, "execution": {**(tool.get("execution") or {}), "taskSupport": support}}


# -- to the client ---------------------------------------------------------------------------------


def offered(capabilities: Mapping[str, Any]) -> bool:
    """Return whether the server's capabilities include tasks for tool calls."""
    tasks = capabilities.get("tasks") or {}
    return "call" in (tasks.get("requests") or {}).get("tools", {})


def can_be_task(tool: Mapping[str, Any]) -> bool:
    return (tool.get("execution") or {}).get("taskSupport") in ("optional", "required")


def asking(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call that asks for a task."""
    return {**params, "task": {}}


def task_in(result: Mapping[str, Any]) -> str | None:
    """Return the id of the task that a call became."""
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, Mapping) else None
    return task_id if isinstance(task_id, str) else None


def named(task_id: str) -> dict[str, Any]:
    """Return the parameters of a request about a task."""
    return {"taskId": task_id}


def task_in_news(params: Mapping[str, Any]) -> str | None:
    """Return the task that a notification or server request is about."""
    meta = params.get("_meta") or {}
    named = params.get("taskId") or related_task(meta)
    return named if isinstance(named, str) else None


def related_task(meta: Mapping[str, Any]) -> str | None:
    task_id = (meta.get(RELATED_TASK) or {}).get("taskId")
    return task_id if isinstance(task_id, str) else None


def poll_interval_s(task: Mapping[str, Any]) -> float | None:
    """Return the poll interval that the server asks for."""
    ms = task.get("pollInterval")
    return ms / 1000 if isinstance(ms, int | float) and ms > 0 else None
