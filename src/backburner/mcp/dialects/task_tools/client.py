"""Client side of the task tools of a Backburner server, for any dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR

from ....errors import NotOffered, TaskWasCancelled
from ...connection import Connection
from ...results import failed_result, value_result
from ...updates import LogLine, Status, TaskProgress, Update
from . import wire

_STATUS: Mapping[str, Status] = {
    "input_required": "input_required",
    "succeeded": "completed",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "cancelled",
}


class TaskToolsClient:
    """Calls the task tools under the prefix with which the server lists them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def offered(self) -> bool:
        return is_among(await self.connection.tools())

    async def _call(self, name: str, task_id: str, **arguments: Any) -> dict[str, Any]:
        """Return the structured result, with the whole result if the server sent it.

        Raises NotOffered if the server lacks the tool or the task.
        """
        named = _named(name, await self.connection.tools())
        if named is None:
            raise NotOffered(what=f"{name}", task_id=task_id)
        params = {"name": named, "arguments": {"task_id": task_id, **arguments}}
        result = await self.connection.request("tools/call", params)
        if result.get("isError"):
            raise NotOffered(what=f"{name} ({result['content'][0].get('text')})", task_id=task_id)
        return {
            **result["structuredContent"],
            wire.RESULT_ITSELF: (result.get("_meta") or {}).get(wire.RESULT_ITSELF),
        }

    async def read(self, task_id: str) -> Update:
        return _update(await self._call(wire.GET_TASK_STATUS, task_id))

    async def result(self, task_id: str) -> types.CallToolResult:
        """Raises TaskWasCancelled, and MCPError for a task that failed without a tool result."""
        found = await self._call(wire.GET_TASK_RESULT, task_id)
        if found["state"] == "cancelled":
            raise TaskWasCancelled(task_id=task_id)
        error = found["error"]
        if error is not None and (raised := error.get("jsonrpc")) is not None:
            raise MCPError(raised["code"], raised["message"], raised.get("data"))
        if error is not None and error["type"] != "tool_error":
            raise MCPError(INTERNAL_ERROR, error["message"], {"type": error["type"]})
        if found[wire.RESULT_ITSELF] is not None:
            return types.CallToolResult.model_validate(found[wire.RESULT_ITSELF])
        value = found["result"]
        shown = value_result(value) if error is None else failed_result(error["message"], value)
        return types.CallToolResult.model_validate({**shown, "_meta": found.get("_meta")})

    async def cancel(self, task_id: str) -> None:
        await self._call(wire.CANCEL_TASK, task_id)

    async def progress(self, task_id: str) -> TaskProgress | None:
        return (await self.read(task_id)).progress if await self.offered() else None

    async def logs(self, task_id: str, cursor: str | None) -> tuple[list[LogLine], str, bool]:
        """Return lines after the cursor, the next cursor, and whether more are available."""
        page = await self._call(
            wire.TAIL_TASK_LOGS, task_id, **({} if cursor is None else {"cursor": cursor})
        )
        return [LogLine(**line) for line in page["lines"]], page["next_cursor"], page["truncated"]

    async def artifacts(self, task_id: str) -> list[dict[str, Any]]:
        """Return the task's files as the server shows them; some servers list them only at the end."""
        lists_them = _named(wire.LIST_TASK_ARTIFACTS, await self.connection.tools()) is not None
        tool = wire.LIST_TASK_ARTIFACTS if lists_them else wire.GET_TASK_RESULT
        return list((await self._call(tool, task_id))["artifacts"])


def is_among(tools: Mapping[str, Any]) -> bool:
    """Return whether these tools include the task tools."""
    return _named(wire.GET_TASK_STATUS, tools) is not None


def _named(name: str, tools: Mapping[str, Any]) -> str | None:
    found = (tool for tool in tools if tool.endswith(wire.WAIT_FOR_TASK))
    prefix = next((tool.removesuffix(wire.WAIT_FOR_TASK) for tool in found), None)
    return prefix + name if prefix is not None and prefix + name in tools else None


def _update(status: Mapping[str, Any]) -> Update:
    error, state = status.get("error"), status["state"]
    raised = state == "failed" and error is not None and error["type"] == "tool_error"
    return Update(
        status["task_id"],
        "completed" if raised else _STATUS.get(state, "working"),
        message=error["message"] if error else "",
        progress=_progress(status),
        questions={
            question["key"]: {
                "method": "elicitation/create",
                "params": {"message": question["message"], "requestedSchema": question["schema"]},
            }
            for question in status.get("questions") or ()
        },
        poll_s=(status.get("poll_after_ms") or 1000) / 1000,
    )


def _progress(status: Mapping[str, Any]) -> TaskProgress:
    """Return the progress; its phase is the state while the tool reports none."""
    told, estimate = status.get("progress"), wire.estimate_in(status)
    if not told:
        return TaskProgress(phase=status.get("state"), estimate=estimate)
    return TaskProgress(
        told.get("percent"), told.get("phase"), told.get("message"), status.get("eta_s"), estimate
    )
