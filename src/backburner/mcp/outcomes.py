"""The outcome of a finished task as the result of the tool call that it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BackburnerError
from ..lifecycle import State
from ..service import TaskResult
from ..task import Artifact, Task
from .links import Links, artifact_uri, media_type, result_uri
from .progress_tokens import token_of


def tool_raised(task: Task) -> bool:
    """Whether the task failed because its tool did, and not because it could not be run."""
    return task.state is State.FAILED and task.error is not None and task.error.type == "tool_error"


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


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


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


def error_as_result(error: BackburnerError) -> dict[str, Any]:
    """An error of ours as a result, so that a model can read it and do better."""
    return error_result(str(error), {"error": error.to_dict()})


def value_result(value: Any) -> dict[str, Any]:
    """A `CallToolResult` for the plain value that a function returned."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    structured = value if isinstance(value, dict) else {"result": value}
    return {"content": [text_block(text)], "structuredContent": structured, "isError": False}


def call_tool_result(outcome: TaskResult, links: Links) -> dict[str, Any]:
    """The `CallToolResult` of a task that succeeded, or whose tool raised. Others have none."""
    task = outcome.task
    result = _raised_result(task) if tool_raised(task) else _returned_result(outcome, links)
    return {**result, "_meta": {**(result.get("_meta") or {}), **result_meta(task)}}


def _raised_result(task: Task) -> dict[str, Any]:
    assert task.error is not None, "a failed task has an error"
    whole = (task.error.data or {}).get("result")
    return dict(whole) if whole else failed_result(task.error.message, own_word(task))


def _returned_result(outcome: TaskResult, links: Links) -> dict[str, Any]:
    task = outcome.task
    assert task.state is State.SUCCEEDED, "only these have a result"
    large = large_result(task, outcome.artifacts)
    if large is not None:
        result = _preview_result(task, large, links)
    elif task.result_kind == "call_tool_result":
        result = dict(task.result)
    else:
        result = value_result(task.result)
    others = [artifact for artifact in outcome.artifacts if artifact is not large]
    return {**result, "content": [*result["content"], *(resource_link(artifact) for artifact in others)]}


def large_result(task: Task, artifacts: Sequence[Artifact]) -> Artifact | None:
    """The artifact that holds the result, when it was over the size limit."""
    if not isinstance(task.result, dict) or task.result.get("truncated") is not True:
        return None
    kept_in = task.result.get("artifact_id")
    return next((a for a in artifacts if a.kind == "result" and a.artifact_id == kept_in), None)


def _preview_result(task: Task, artifact: Artifact, links: Links) -> dict[str, Any]:
    link = links.to(artifact, task.expires_at)
    where = f"read {result_uri(task.task_id)}?offset=0&length=65536 and so on"
    where += f", or download {link.url}" if link else ""
    text = (
        f"The result is {artifact.size_bytes} bytes long. This is its beginning; for all of it {where}.\n\n"
    )
    structured = {**task.result, "resource": result_uri(task.task_id)}
    if link is not None:
        structured["download_url"] = link.url
    block = {
        "type": "resource_link",
        "uri": result_uri(task.task_id),
        "name": artifact.name,
        "mimeType": "application/json",
        "size": artifact.size_bytes,
    }
    content = [text_block(text + str(task.result["preview"])), block]
    return {"content": content, "structuredContent": structured, "isError": False}


def resource_link(artifact: Artifact) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": artifact_uri(artifact),
        "name": artifact.name,
        "description": f"{artifact.kind}, sha256 {artifact.sha256}",
        "mimeType": media_type(artifact),
        "size": artifact.size_bytes,
    }
