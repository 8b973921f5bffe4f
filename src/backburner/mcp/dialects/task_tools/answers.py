"""Answers of the task tools: status, outcome, and the text that a model reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....core.lifecycle import State
from ....core.task import Task
from ....core.times import iso
from ....service.tasks import TaskResult, TaskStatus
from ...errors import raised_error
from ...results import (
    ArtifactLinks,
    ResultPresenter,
    call_tool_result,
    error_for_clients,
    reported_result,
    result_meta,
    text_block,
    tool_raised,
)
from ...updates import status_message
from .wire import estimated


@dataclass(frozen=True)
class Answer:
    """Answer of a task tool: `body` as data, `content` as text, `extra` content blocks.

    Without `content`, the text is the body as JSON.
    """

    body: Mapping[str, Any]
    content: Sequence[Mapping[str, Any]] = ()
    extra: Sequence[Mapping[str, Any]] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False

    def as_result(self) -> dict[str, Any]:
        """Return a `CallToolResult`."""
        content = self.content or [text_block(json.dumps(self.body, ensure_ascii=False))]
        result = {
            "content": [*content, *self.extra],
            "structuredContent": dict(self.body),
            "isError": self.is_error,
        }
        meta = {**self.body.get("_meta", {}), **self.meta}
        return {**result, "_meta": meta} if meta else result


def describe(status: TaskStatus) -> dict[str, Any]:
    """Return a task's status."""
    task, progress = status.task, status.task.progress
    shown: dict[str, Any] = {
        "task_id": task.task_id,
        "state": task.state,
        "tool_name": task.tool_name,
        "attempt": task.tries,
        "priority": task.priority,
        "queue": task.queue,
        "position": status.position,
        "worker_id": task.worker_id,
        "submitted_at": iso(task.submitted_at),
        "started_at": iso(task.started_at),
        "updated_at": iso(task.updated_at),
        "heartbeat_at": iso(task.heartbeat_at),
        "completed_at": iso(task.completed_at),
        **estimated(status.estimate),
        "progress": None if progress is None else {**progress.to_dict(), "eta_s": status.eta_s},
        "eta_s": status.eta_s,
        "cancel_requested": task.cancel_requested,
        "timeout_at": iso(task.timeout_at),
        "expires_at": iso(task.expires_at),
        "tags": list(task.tags),
        "error": shown_error(task),
        **_asked(status),
    }
    if task.cancel_reason is not None:
        shown["cancel_reason"] = task.cancel_reason
    if task.waits_for is not None:
        shown["waits_for"] = task.waits_for
    if not task.finished:
        shown["poll_after_ms"] = status.advised_poll_ms
    return shown


def describe_result(result: TaskResult, presenter: ResultPresenter, links: ArtifactLinks) -> Answer:
    """Return the outcome of a finished task, for `get_task_result`."""
    task = result.task
    succeeded = task.state is State.SUCCEEDED
    value, blocks = presenter.value(result) if succeeded else (reported_result(task), [])
    return Answer(
        {
            "task_id": task.task_id,
            "state": task.state,
            "result": value,
            "artifacts": links.shown(task, result.artifacts)["artifacts"],
            "error": shown_error(task),
            "completed_at": iso(task.completed_at),
            "_meta": result_meta(task),
        },
        extra=blocks,
    )


def compact_result(result: TaskResult, presenter: ResultPresenter, links: ArtifactLinks) -> Answer:
    """Return only the outcome of a finished task; its text is that of the call itself."""
    whole, task = describe_result(result, presenter, links).body, result.task
    body = {"task_id": task.task_id, "state": task.state, "finished": True}
    if task.state is State.SUCCEEDED:
        body["result"] = whole["result"]
        content = call_tool_result(result, presenter, typed=False)["content"]
    else:
        body |= {key: whole[key] for key in ("result", "error") if whole[key] is not None}
        content = _failure(result, presenter)
    if whole["artifacts"]:
        body["artifacts"] = whole["artifacts"]
    return Answer(body, content, meta=whole["_meta"])


def _failure(result: TaskResult, presenter: ResultPresenter) -> list[Mapping[str, Any]]:
    task, words = result.task, f"The task is {result.task.state}."
    if tool_raised(task):
        return [text_block(words), *call_tool_result(result, presenter, typed=False)["content"]]
    return [text_block(words if task.error is None else f"{words} {task.error.message}")]


def compact_status(status: TaskStatus) -> dict[str, Any]:
    """Return the status of an unfinished task."""
    task = status.task
    words = status_message(status) or str(task.state)
    return {
        "task_id": task.task_id,
        "state": task.state,
        "finished": False,
        "status": words,
        **_asked(status),
    }


def _asked(status: TaskStatus) -> dict[str, Any]:
    asked = [
        {"key": q.key, "message": q.params.get("message"), "schema": q.params.get("requestedSchema")}
        for q in status.questions
    ]
    return {"questions": asked} if asked else {}


def shown_error(task: Task) -> dict[str, Any] | None:
    """Return the error without its traceback, which is for operators; JSON-RPC errors are whole."""
    error, raised = error_for_clients(task, task.error), raised_error(task)
    if error is None:
        return None
    shown = {"type": error.type, "message": error.message, "exception": error.exception}
    return shown if raised is None else {**shown, "jsonrpc": raised}
