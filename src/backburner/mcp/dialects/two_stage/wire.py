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

NAME = "two-stage"
POLL = "tools/poll_result"
RESULT_NEWS = "notifications/tool_result"
#: What a client declares under `experimental` to be told of progress and results of its jobs.
CAPABILITY = "tool_result"
#: In the `_meta` of a call: the client can take a handle, and what follows. On a tool: it may hand one out.
ASYNC = "async"

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
_UNFINISHED = ("queued", "running")

HANDLE_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "success": {"type": "boolean"},
            "data": {
                "type": "object",
                "properties": {
                    "job_id": {"type": "string"},
                    "estimated_runtime_seconds": {"type": ["number", "null"]},
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


def handle(job_id: str, status: str, text: str, **data: Any) -> dict[str, Any]:
    """A `CallToolResult` that hands out a job, also for strict clients: the body stands there twice."""
    body = MCPResult(data={"job_id": job_id, **data, "status": status}).add_info(text).to_dict()
    return {"content": [text_block(text)], "structuredContent": body, "isError": False, **body}


def estimated(seconds: float | None) -> dict[str, Any]:
    """How long a job will take, for its handle."""
    return {"estimated_runtime_seconds": seconds}


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
    if isinstance(data, Mapping) and data.get("status") in _UNFINISHED:
        job_id = data.get("job_id")
        return job_id if isinstance(job_id, str) else None
    return None


def named(job_id: str) -> dict[str, Any]:
    """The parameters of a request about a job."""
    return {"job_id": job_id}


def task_in_news(params: Mapping[str, Any]) -> str | None:
    """The job that a notification is about."""
    job_id = params.get("job_id") or (params.get("_meta") or {}).get("job_id")
    return job_id if isinstance(job_id, str) else None


def words_of(body: Mapping[str, Any]) -> str:
    return "\n".join(str(message.get("text", "")) for message in body.get("messages") or ())


def tool_result(result: Mapping[str, Any]) -> types.CallToolResult:
    """A result as the SDK has it, also for a bare `{success, data, messages}`."""
    if "content" not in result and (body := body_in(result)) is not None:
        text = words_of(body) or json.dumps(body["data"], ensure_ascii=False)
        result = {
            "content": [text_block(text)],
            "structuredContent": body,
            "isError": not body["success"],
        }
    return types.CallToolResult.model_validate(result)
