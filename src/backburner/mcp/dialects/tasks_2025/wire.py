"""The tasks of MCP 2025-11-25: their names, shapes and states."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mcp_types as types

from ....lifecycle import State
from ....service import TaskStatus
from ....task import Task
from ....times import LONGEST_S, iso
from ...open_calls import say_joined
from ...status_words import status_message

#: The one revision of the protocol that has them, which is also how clients and servers name this dialect.
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
        State.QUEUED: "working",
        State.SCHEDULED: "working",
        State.RUNNING: "working",
        State.CANCEL_REQUESTED: "working",
        State.CANCELLING: "working",
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
    """A `Task`."""
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
    """A `CreateTaskResult`, with words for a model that goes on at once."""
    words = f"{status.task.tool_name} is working on it as task {status.task_id}; the result will follow."
    return say_joined({"task": task_shown(status), "_meta": {IMMEDIATE_RESPONSE: words}}, status, typed=True)


def related(task_id: str) -> dict[str, Any]:
    """The `_meta` of a message that is about a task."""
    return {RELATED_TASK: {"taskId": task_id}}


def asked_for(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a call says about the task that it wants to become; None when it wants none."""
    task: Mapping[str, Any] | None = params.get("task")
    return task


def ttl_s(asked: Mapping[str, Any]) -> float | None:
    """The time to live that was asked for; what is longer than any is as long as any."""
    ttl = asked.get("ttl")
    return None if ttl is None else min(ttl, LONGEST_S * 1000) / 1000


def described(tool: dict[str, Any], support: str) -> dict[str, Any]:
    """A listed tool that says whether it can be called as a task."""
    return {**tool, "execution": {**(tool.get("execution") or {}), "taskSupport": support}}


# -- to the client ---------------------------------------------------------------------------------


def offered(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server's capabilities say that it makes tasks of calls."""
    tasks = capabilities.get("tasks") or {}
    return "call" in (tasks.get("requests") or {}).get("tools", {})


def can_be_task(tool: Mapping[str, Any]) -> bool:
    return (tool.get("execution") or {}).get("taskSupport") in ("optional", "required")


def asking(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a call that wants to become a task."""
    return {**params, "task": {}}


def task_in(result: Mapping[str, Any]) -> str | None:
    """The id of the task that a call became, if its result says so."""
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, Mapping) else None
    return task_id if isinstance(task_id, str) else None


def named(task_id: str) -> dict[str, Any]:
    """The parameters of a request about a task."""
    return {"taskId": task_id}


def task_in_news(params: Mapping[str, Any]) -> str | None:
    """The task that a notification, or a request of the server's, is about."""
    meta = params.get("_meta") or {}
    named = params.get("taskId") or related_task(meta)
    return named if isinstance(named, str) else None


def related_task(meta: Mapping[str, Any]) -> str | None:
    task_id = (meta.get(RELATED_TASK) or {}).get("taskId")
    return task_id if isinstance(task_id, str) else None


def poll_interval_s(task: Mapping[str, Any]) -> float | None:
    """How long the server asks to wait before it is asked again."""
    ms = task.get("pollInterval")
    return ms / 1000 if isinstance(ms, int | float) and ms > 0 else None
