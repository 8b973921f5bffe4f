"""Tasks in the words of the task tools: their status, their outcome, and what a model reads of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....lifecycle import State
from ....service import TaskResult, TaskStatus
from ....task import Task
from ....times import iso
from ...jsonrpc_errors import raised_error
from ...links import Links
from ...outcomes import call_tool_result, error_for_clients, own_word, result_meta, tool_raised
from ...showing import Showing, text_block
from ...status_words import status_message
from .wire import estimated


@dataclass(frozen=True)
class Answer:
    """What a task tool answers: the body as data, and `content` for who reads text.

    Without content, the text is the body as JSON. `beside` are blocks that are no text.
    """

    body: Mapping[str, Any]
    content: Sequence[Mapping[str, Any]] = ()
    beside: Sequence[Mapping[str, Any]] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False

    def as_result(self) -> dict[str, Any]:
        """A `CallToolResult`."""
        content = self.content or [text_block(json.dumps(self.body, ensure_ascii=False))]
        result = {
            "content": [*content, *self.beside],
            "structuredContent": dict(self.body),
            "isError": self.is_error,
        }
        meta = {**self.body.get("_meta", {}), **self.meta}
        return {**result, "_meta": meta} if meta else result


def describe(status: TaskStatus) -> dict[str, Any]:
    """A task's status."""
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


def describe_result(result: TaskResult, showing: Showing, links: Links) -> Answer:
    """The outcome of a finished task, as `get_task_result` promises it."""
    task = result.task
    succeeded = task.state is State.SUCCEEDED
    value, blocks = showing.value(result) if succeeded else (own_word(task), [])
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
        beside=blocks,
    )


def in_short(result: TaskResult, showing: Showing, links: Links) -> Answer:
    """The outcome of a finished task, and nothing else: its text is that of the call that it was."""
    whole, task = describe_result(result, showing, links).body, result.task
    body = {"task_id": task.task_id, "state": task.state, "finished": True}
    if task.state is State.SUCCEEDED:
        body["result"] = whole["result"]
        content = call_tool_result(result, showing, typed=False)["content"]
    else:
        body |= {key: whole[key] for key in ("result", "error") if whole[key] is not None}
        content = _failure(result, showing)
    if whole["artifacts"]:
        body["artifacts"] = whole["artifacts"]
    return Answer(body, content, meta=whole["_meta"])


def _failure(result: TaskResult, showing: Showing) -> list[Mapping[str, Any]]:
    task, words = result.task, f"The task is {result.task.state}."
    if tool_raised(task):
        return [text_block(words), *call_tool_result(result, showing, typed=False)["content"]]
    return [text_block(words if task.error is None else f"{words} {task.error.message}")]


def in_a_line(status: TaskStatus) -> dict[str, Any]:
    """How a task is that is not finished."""
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
    """Without the traceback, which is for the logs and the operator; whole if it is an error of JSON-RPC."""
    error, raised = error_for_clients(task, task.error), raised_error(task)
    if error is None:
        return None
    shown = {"type": error.type, "message": error.message, "exception": error.exception}
    return shown if raised is None else {**shown, "jsonrpc": raised}
