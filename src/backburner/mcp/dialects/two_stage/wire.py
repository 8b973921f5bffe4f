"""The two-stage return: a handle at once, and the result later, by notification or polling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mcp_types as types
from pydantic import Field

from ....core.lifecycle import State
from ....core.times import SystemClock, iso
from ....tools.results import MCPResult
from ...results import text_block

NAME = "two-stage"
POLL = "tools/poll_result"
RESULT_NEWS = "notifications/tool_result"
#: Experimental client capability: receives progress and results of jobs.
CAPABILITY = "tool_result"
#: In the `_meta` of a call: the client wants a handle. On a tool: it may return one.
ASYNC = "async"
#: First progress message of a job.
STARTING = "Starting operation..."

STATUS: Mapping[State, str] = MappingProxyType(
    {
        **dict.fromkeys((State.QUEUED, State.SCHEDULED), "queued"),
        **dict.fromkeys((State.RUNNING, State.INPUT_REQUIRED), "running"),
        **dict.fromkeys((State.CANCEL_REQUESTED, State.CANCELLING), "running"),
        **dict.fromkeys((State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED), "complete"),
    }
)
UNFINISHED = ("queued", "running")

_clock = SystemClock()


class PollParams(types.RequestParams):
    """Parameters of the poll; the name is in snake case, unlike the protocol's."""

    job_id: str = Field(alias="job_id")


# -- from the server -------------------------------------------------------------------------------


def handle(job_id: str, status: str, *texts: str, typed: bool = False, **data: Any) -> dict[str, Any]:
    """Return a `CallToolResult` with a job.

    The body is at the top level and in the structured content, since clients drop unknown fields. For a
    `typed` tool, whose structured content must match its schema, it is in `_meta` instead.
    """
    result = MCPResult(data={"job_id": job_id, **data, "status": status})
    for text in texts:
        result.add_info(text)
    body = result.to_dict()
    kept = {"_meta": body} if typed else {"structuredContent": body}
    return {"content": [text_block("\n".join(texts))], "isError": False, **kept, **body}


def too_early(handed_out: Mapping[str, Any]) -> dict[str, Any]:
    """Return a typed tool's handle as an error, for a client that may validate it.

    Only errors may differ from the output schema. The text says that the result is not ready, and how to get
    it.
    """
    first = text_block("There is no result yet. This is not a failure, and the call needs no repeating.")
    return {**handed_out, "content": [first, *handed_out["content"]], "isError": True}


def queued_words(status: str, seconds: float) -> str:
    """Return the first line of a handle: `Operation queued. Estimated runtime: 45s`."""
    return f"Operation {status}. Estimated runtime: {round(seconds, 2):.12g}s"


def described(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a listed tool marked as asynchronous, also in `_meta`."""
    return {**tool, ASYNC: True, "_meta": {**(tool.get("_meta") or {}), ASYNC: True}}


def about_job(job_id: str) -> dict[str, Any]:
    """Return the job fields of a notification."""
    return {"job_id": job_id, "timestamp": iso(_clock.now_ms())}


# -- to the client ---------------------------------------------------------------------------------


def body_in(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `{success, data, messages}` of a two-stage server, bare or in a tool result."""
    for body in (result.get("structuredContent"), result, result.get("_meta")):
        if isinstance(body, Mapping) and isinstance(body.get("success"), bool) and "data" in body:
            return dict(body)
    return None


def task_in(result: Mapping[str, Any]) -> str | None:
    """Return the id of the job that a call became, if it continues in the background."""
    data = (body_in(result) or {}).get("data")
    if isinstance(data, Mapping) and data.get("status") in UNFINISHED:
        job_id = data.get("job_id")
        return job_id if isinstance(job_id, str) else None
    return None


def poll_endpoint(result: Mapping[str, Any]) -> str | None:
    """Return the poll method that the server names for a job."""
    method = (body_in(result) or {"data": {}})["data"].get("poll_endpoint")
    return method if isinstance(method, str) and method else None


def named(job_id: str) -> dict[str, Any]:
    """Return the parameters of a request about a job."""
    return {"job_id": job_id}


def task_in_news(params: Mapping[str, Any]) -> str | None:
    """Return the job that a notification is about."""
    job_id = params.get("job_id") or (params.get("_meta") or {}).get("job_id")
    return job_id if isinstance(job_id, str) else None


def words_of(body: Mapping[str, Any]) -> str:
    """Return the text of the messages, with their details."""
    said = [message for message in body.get("messages") or () if isinstance(message, Mapping)]
    return "\n".join(str(text) for each in said for text in (each.get("text"), each.get("details")) if text)


def tool_result(result: Any) -> types.CallToolResult:
    """Return a `CallToolResult` for a tool result, a bare `{success, data, messages}`, or any JSON.

    The text contains both messages and data.
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
