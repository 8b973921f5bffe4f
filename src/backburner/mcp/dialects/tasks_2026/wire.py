"""Names, models and status words of the 2026-07-28 tasks extension."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mcp_types as types

from ....core.lifecycle import State
from ....core.task import Task
from ....core.times import iso, span
from ....service.tasks import TaskStatus
from ...open_calls import mark_joined
from ...progress import ProgressUpdate
from ...results import tool_raised
from ...updates import status_message

#: Name of the dialect.
NAME = "2026-07-28"
EXTENSION = "io.modelcontextprotocol/tasks"
GET, UPDATE, CANCEL = "tasks/get", "tasks/update", "tasks/cancel"
LISTEN, TASK_IDS = "subscriptions/listen", "taskIds"
NEWS = "notifications/tasks"
RESULT_TYPE = "task"
MOST_TASK_IDS = 256
#: In the `_meta` of a `CreateTaskResult`: a note that Claude Code shows to the model with the task.
AGENT_TASK, MODEL_NOTE = "com.anthropic/agent-task", "modelImmediateResponse"
#: In a task's `_meta`: progress as in `notifications/progress`; the extension has no field for it.
PROGRESS = "backburner/progress"

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


class UpdateParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any]


def asks_for_tasks(params: Mapping[str, Any]) -> bool:
    """Return whether an unchecked request declares the extension."""
    match params:
        case {"_meta": {types.CLIENT_CAPABILITIES_META_KEY: {"extensions": {**extensions}}}}:
            return EXTENSION in extensions
    return False


def client_in(params: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and version of the client of an unchecked request; empty where unknown."""
    match params:
        case {"_meta": {types.CLIENT_INFO_META_KEY: {"name": str(name), "version": str(version)}}}:
            return name, version
    return "", ""


def status_of(task: Task) -> str:
    """Return the status; a tool's own error is a result, so its task is `completed`."""
    return "completed" if tool_raised(task) else STATUS[task.state]


def task_shown(status: TaskStatus) -> dict[str, Any]:
    """Return a `Task`."""
    task = status.task
    shown: dict[str, Any] = {
        "taskId": task.task_id,
        "status": status_of(task),
        "createdAt": iso(task.submitted_at),
        "lastUpdatedAt": iso(task.updated_at),
        "ttlMs": task.retention_ms,
        "pollIntervalMs": status.poll_after_ms,
    }
    if message := status_message(status):
        shown["statusMessage"] = message
    if task.progress is not None:
        shown["_meta"] = {PROGRESS: _progress_shown(ProgressUpdate.of(task.progress))}
    return shown


def _progress_shown(update: ProgressUpdate) -> dict[str, Any]:
    progress, total = update.absolute or ((update.part or 0), 1)
    return {"progress": progress, "total": total, "message": update.message}


def progress_in(task: Mapping[str, Any]) -> tuple[float, float | None, str | None] | None:
    """Return progress, total and message, if the server sends them."""
    told = (task.get("_meta") or {}).get(PROGRESS)
    if not isinstance(told, dict) or not isinstance(told.get("progress"), int | float):
        return None
    return told["progress"], told.get("total"), told.get("message")


def created(status: TaskStatus) -> dict[str, Any]:
    """Return a `CreateTaskResult`, with a note for the model if the expected time is more than a guess."""
    shown = {"resultType": RESULT_TYPE, **task_shown(status)}
    if not (status.task.finished or status.estimate.is_guess):
        left_s = status.estimate.seconds if status.eta_s is None else max(status.eta_s, 1)
        note = f"About {span(left_s)}, {status.estimate.source.words}. Nothing to call meanwhile."
        shown["_meta"] = {**shown.get("_meta", {}), AGENT_TASK: {MODEL_NOTE: note}}
    return mark_joined(shown, status, typed=True)


def task_in(result: Mapping[str, Any]) -> str | None:
    """Return the id of the task that a call became."""
    task_id = result.get("taskId") if result.get("resultType") == RESULT_TYPE else None
    return task_id if isinstance(task_id, str) else None


def named(task_id: str, **more: Any) -> dict[str, Any]:
    """Return the parameters of a request about a task."""
    return {"taskId": task_id, **more}


def task_in_news(params: Mapping[str, Any]) -> str | None:
    """Return the task that a notification is about."""
    named = params.get("taskId")
    return named if isinstance(named, str) else None


def poll_interval_s(task: Mapping[str, Any]) -> float | None:
    """Return the poll interval that the server asks for."""
    ms = task.get("pollIntervalMs")
    return ms / 1000 if isinstance(ms, int | float) and ms > 0 else None
