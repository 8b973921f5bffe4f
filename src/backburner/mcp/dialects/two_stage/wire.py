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
from ...showing import text_block

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

_clock = SystemClock()


class PollParams(types.RequestParams):
    """Which job; the name has no camels, unlike the protocol's own."""

    job_id: str = Field(alias="job_id")


# -- from the server -------------------------------------------------------------------------------


def handle(job_id: str, status: str, *texts: str, typed: bool = False, **data: Any) -> dict[str, Any]:
    """A `CallToolResult` that hands out a job.

    The body stands there twice, since clients drop what they do not know: at the top, and as the structured
    content. Of a `typed` tool that must fit its schema, so there the second place is `_meta`.
    """
    result = MCPResult(data={"job_id": job_id, **data, "status": status})
    for text in texts:
        result.add_info(text)
    body = result.to_dict()
    kept = {"_meta": body} if typed else {"structuredContent": body}
    return {"content": [text_block("\n".join(texts))], "isError": False, **kept, **body}


def too_early(handed_out: Mapping[str, Any]) -> dict[str, Any]:
    """A handle of a typed tool for a client that may hold it against the tool's output schema.

    What is no error has to fit the schema. So it says that there is no result, and how to go on.
    """
    first = text_block("There is no result yet. This is not a failure, and the call needs no repeating.")
    return {**handed_out, "content": [first, *handed_out["content"]], "isError": True}


def queued_words(status: str, seconds: float) -> str:
    """The first words of a handle: `Operation queued. Estimated runtime: 45s`."""
    return f"Operation {status}. Estimated runtime: {round(seconds, 2):.12g}s"


def described(tool: dict[str, Any]) -> dict[str, Any]:
    """A listed tool that says that it may hand out a job; in `_meta` too, for clients that drop the rest."""
    return {**tool, ASYNC: True, "_meta": {**(tool.get("_meta") or {}), ASYNC: True}}


def about_job(job_id: str) -> dict[str, Any]:
    """What a notification says of the job that it is about."""
    return {"job_id": job_id, "timestamp": iso(_clock.now_ms())}


# -- to the client ---------------------------------------------------------------------------------


def body_in(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The `{success, data, messages}` of a two-stage server: some send it bare, some in a tool result."""
    for body in (result.get("structuredContent"), result, result.get("_meta")):
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
