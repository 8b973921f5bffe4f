"""The outcome of a finished task as the result of the tool call that it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import BackburnerError
from ..lifecycle import State
from ..service import TaskResult
from ..task import Task, TaskError
from .progress_tokens import token_of
from .showing import Showing, text_block, value_result


def tool_raised(task: Task) -> bool:
    """Whether the task failed because its tool did, and not because it could not be run."""
    return task.state is State.FAILED and task.error is not None and task.error.type == "tool_error"


def error_for_clients(task: Task, error: TaskError | None) -> TaskError | None:
    """The error of a task, or of an attempt at it, as clients may see it.

    The framework of an attached tool decides what they are told: no more than its message.
    """
    if error is None or task.result_kind == "value":
        return error
    return replace(error, exception="", details="")


def result_meta(task: Task) -> dict[str, Any]:
    """The `_meta` of a finished task's result: the token of its call, and how long its tool ran, in ms."""
    if "wall_s" in task.metrics:
        duration = round(1000 * task.metrics["wall_s"])
    elif task.started_at is not None and task.completed_at is not None:
        duration = max(0, task.completed_at - task.started_at)  # it was killed
    else:
        duration = 0
    return {"progressToken": token_of(task), "duration": duration}


def own_word(task: Task) -> dict[str, Any] | None:
    """The MCPResult by which a tool said that it failed; None for one that raised."""
    return ((task.error.data if task.error else None) or {}).get("mcp_result")


def error_result(message: str, structured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A `CallToolResult` that says what went wrong."""
    result: dict[str, Any] = {"content": [text_block(message)], "isError": True}
    return result if structured is None else {**result, "structuredContent": dict(structured)}


def failed_result(message: str, said: Any) -> dict[str, Any]:
    """That a tool failed, with the MCPResult by which it said so; None for one that raised."""
    result = error_result(message)
    if said is None:
        return result
    shown = value_result(said)
    return {**shown, **result, "content": [*result["content"], *shown["content"]]}


def error_as_result(error: BackburnerError, *, typed: bool = False) -> dict[str, Any]:
    """An error of ours as a result, so that a model can read it and do better.

    Some clients hold even an error's structured content against the schema that a `typed` tool has.
    """
    told = {"error": error.to_dict()}
    return {**error_result(str(error)), "_meta": told} if typed else error_result(str(error), told)


def call_tool_result(outcome: TaskResult, showing: Showing, *, typed: bool) -> dict[str, Any]:
    """The `CallToolResult` of a task that succeeded, or whose tool raised. Others have none."""
    task = outcome.task
    if tool_raised(task):
        result = _raised_result(task)
    else:
        assert task.state is State.SUCCEEDED, "only these have a result"
        result = showing.result(outcome, typed=typed)
    return {**result, "_meta": {**(result.get("_meta") or {}), **result_meta(task)}}


def _raised_result(task: Task) -> dict[str, Any]:
    assert task.error is not None, "a failed task has an error"
    whole = (task.error.data or {}).get("result")
    return dict(whole) if whole else failed_result(task.error.message, own_word(task))
