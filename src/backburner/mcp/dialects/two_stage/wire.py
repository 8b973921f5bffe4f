"""The two-stage return: a handle at once, and the result later, by a notification or by polling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mcp_types as types
from pydantic import Field

from ....clock import SystemClock
from ....lifecycle import State
from ....mcp_result import MCPResult
from ....times import iso
from ...outcomes import text_block
from ..task_tools.wire import ESTIMATE

NAME = "two-stage"
POLL = "tools/poll_result"
RESULT_NEWS = "notifications/tool_result"
#: What a client declares under `experimental` to be told of progress and results of its jobs.
CAPABILITY = "tool_result"
#: In the `_meta` of a call: the client wants a handle, and what follows. On a tool: it may hand one out.
ASYNC = "async"
#: The first word of a job's progress, before its tool has said anything.
STARTING = "Starting operation..."

STATUS: Mapping[State, str] = MappingProxyType(
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
UNFINISHED = ("queued", "running")

HANDLE_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "success": {"type": "boolean"},
            "data": {
                "type": "object",
                "properties": {
                    "job_id": {"type": "string"},
                    **ESTIMATE,
                    "status": {"type": "string", "enum": sorted(set(STATUS.values()))},
                },
                "required": ["job_id", "status"],
            },
            "messages": {"type": "array"},
        },
        "required": ["success", "data", "messages"],
    }
)
_clock = SystemClock()


class PollParams(types.RequestParams):
    """Which job; the name has no camels, unlike the protocol's own."""

    job_id: str = Field(alias="job_id")


# -- from the server -------------------------------------------------------------------------------


def handle(job_id: str, status: str, *texts: str, **data: Any) -> dict[str, Any]:
    """A `CallToolResult` that hands out a job, also for strict clients: the body stands there twice."""
    result = MCPResult(data={"job_id": job_id, **data, "status": status})
    for text in texts:
        result.add_info(text)
    body = result.to_dict()
    return {"content": [text_block("\n".join(texts))], "structuredContent": body, "isError": False, **body}


def queued_words(status: str, seconds: float) -> str:
    """The first words of a handle: `Operation queued. Estimated runtime: 45s`."""
    return f"Operation {status}. Estimated runtime: {round(seconds, 2):.12g}s"


def or_handle(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema that also admits the handle, which a client without tasks may get instead."""
    own = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    shared = {key: schema[key] for key in ("$defs", "$schema") if key in schema}
    return {**shared, "type": "object", "anyOf": [own, dict(HANDLE_SCHEMA)]}


def described(tool: dict[str, Any]) -> dict[str, Any]:
    """A listed tool that says that it may hand out a job; in `_meta` too, for clients that drop the rest."""
    return {**tool, ASYNC: True, "_meta": {**(tool.get("_meta") or {}), ASYNC: True}}


def about_job(job_id: str) -> dict[str, Any]:
    """What a notification says of the job that it is about."""
    return {"job_id": job_id, "timestamp": iso(_clock.now_ms())}


# -- to the client ---------------------------------------------------------------------------------


def body_in(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `{success, data, messages}` of a two-stage server: some send it bare, some in a tool result."""
    for body in (result.get("structuredContent"), result):
        if isinstance(body, Mapping) and isinstance(body.get("success"), bool) and "data" in body:
            return dict(body)
    return None


def task_in(result: Mapping[str, Any]) -> str | None:
    """The id of the job that a call became, if it goes on in the background."""
    data = (body_in(result) or {}).get("data")
    if isinstance(data, Mapping) and data.get("status") in UNFINISHED:
        job_id = data.get("job_id")
        return job_id if isinstance(job_id, str) else None
    return None


def poll_endpoint(result: Mapping[str, Any]) -> str | None:
    """The method by which the server of a handed out job wants to be polled, if it says so."""
    method = (body_in(result) or {"data": {}})["data"].get("poll_endpoint")
    return method if isinstance(method, str) and method else None


def named(job_id: str) -> dict[str, Any]:
    """The parameters of a request about a job."""
    return {"job_id": job_id}


def task_in_news(params: Mapping[str, Any]) -> str | None:
    """The job that a notification is about."""
    job_id = params.get("job_id") or (params.get("_meta") or {}).get("job_id")
    return job_id if isinstance(job_id, str) else None


def words_of(body: Mapping[str, Any]) -> str:
    """What the messages say, with their details."""
    said = [message for message in body.get("messages") or () if isinstance(message, Mapping)]
    return "\n".join(str(text) for each in said for text in (each.get("text"), each.get("details")) if text)


def tool_result(result: Any) -> types.CallToolResult:
    """A result as the SDK has it, also for a bare `{success, data, messages}`, and for what is neither.

    Whoever sees the text alone sees the messages and the data.
    """
    if not isinstance(result, Mapping):
        result = {"content": [text_block(json.dumps(result, ensure_ascii=False))]}
    elif "content" not in result:
        body = body_in(result) or {"success": True, "data": dict(result)}
        words, data = words_of(body), json.dumps(body["data"], ensure_ascii=False)
        texts = [words] if words and not body["data"] else [words, data] if words else [data]
        result = {
            "content": [text_block(text) for text in texts],
            "structuredContent": dict(result),
            "isError": not body["success"],
        }
    return types.CallToolResult.model_validate(result)
