"""How a host makes a call for its model: by its clocks, and as a task where both sides have tasks."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types

from backburner.mcp.dialects.task_id.client import AsyncTask, HostPoller

from .connections import Connection, Refused, Request
from .hosts import Host
from .servers.crunching import SCALE, now

#: The words of the official TypeScript SDK, as a server and as a model get them.
TIMED_OUT = "MCP error -32001: Request timed out"
_REASON = f"McpError: {TIMED_OUT}"
IN_BACKGROUND = "The call goes on in the background. You will get its result when it is there."
#: How often a host looks that is not told how often; and it looks no more often than that.
_POLL_MS = 1000


@dataclass(frozen=True)
class Answer:
    """What a model gets to see of a call, and whether its host gave the call up."""

    text: str
    given_up: bool = False


class Calls:
    """The calls that one host makes on one connection."""

    def __init__(self, host: Host, connection: Connection, state_dir: Path) -> None:
        self._host, self._connection = host, connection
        self._tools: dict[str, dict[str, Any]] = {}
        self._poller: HostPoller | None = None
        if host.tasks == "TaskId":
            settings = AsyncTask(tools=("crunch",), state_dir=state_dir)
            self._poller = HostPoller(self._by_task_id, settings, poll_s=_POLL_MS / 1000 / SCALE)

    async def learn_tools(self) -> None:
        listed = await self._connection.request("tools/list", {})
        self._tools = {tool["name"]: tool for tool in listed["tools"]}

    @property
    def tools(self) -> Mapping[str, Mapping[str, Any]]:
        return self._tools

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Make a call, and see it through or give it up."""
        try:
            if self._poller is not None and self._poller.is_for(name):
                return Answer(_text((await self._poller.call(name, arguments)).model_dump(by_alias=True)))
            began = now()
            result = await self._within_limits(await self._begin(name, arguments))
            if result is None:
                return Answer(TIMED_OUT, given_up=True)
            text = _text(await self._of_task(result))
            late = self._host.background_s is not None and now() - began > self._host.background_s
            return Answer(f"{IN_BACKGROUND}\n{text}" if late else text)
        except Refused as error:
            return Answer(f"MCP error: {error}")

    async def _begin(self, name: str, arguments: Mapping[str, Any]) -> Request:
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
        if self._host.wants_progress:
            params["_meta"] = {"progressToken": 0}
        support = (self._tools[name].get("execution") or {}).get("taskSupport")
        if self._host.tasks == "2025-11-25" and support in ("optional", "required"):
            params["task"] = {}
        return await self._connection.begin("tools/call", params)

    async def _within_limits(self, request: Request) -> dict[str, Any] | None:
        """The result; None if the host gave up first."""
        began = now()
        while (left_s := self._ends_at(began, request.heard_at) - now()) > 0:
            await asyncio.wait([request.answer], timeout=None if left_s == math.inf else left_s / SCALE)
            if request.answer.done():
                return request.answer.result()
        if self._host.gives_up == "hangs up":
            self._connection.hang_up(request)
            return None
        self._connection.forget(request)
        if self._host.gives_up == "cancels":
            told = {"requestId": request.request_id, "reason": self._host.reason or _REASON}
            await self._connection.notify("notifications/cancelled", told)
        return None

    def _ends_at(self, began: float, heard_at: float) -> float:
        wall_s, idle_s = self._host.wall_s, self._host.idle_s
        return min(
            math.inf if wall_s is None else began + wall_s,
            math.inf if idle_s is None else max(began, heard_at) + idle_s,
        )

    # -- tasks

    async def _of_task(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result of the task that a call became; or the result itself, where it became none."""
        if self._host.tasks == "2026-07-28" and "taskId" in result:
            task = result
            while task["status"] == "working":
                await _pause(task.get("pollIntervalMs"))
                task = await self._connection.request("tasks/get", {"taskId": result["taskId"]})
            return _result_of(task)
        if self._host.tasks == "2025-11-25" and "task" in result:
            task = result["task"]
            named = {"taskId": task["taskId"]}
            while task["status"] == "working":
                await _pause(task.get("pollInterval"))
                task = await self._connection.request("tasks/get", named)
            return await self._connection.request("tasks/result", named)
        return result

    async def _by_task_id(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> types.CallToolResult:
        params = {"name": name, "arguments": dict(arguments), "_meta": dict(meta)}
        return types.CallToolResult.model_validate(await self._connection.request("tools/call", params))

    async def close(self) -> None:
        if self._poller is not None:
            await self._poller.close()
        await self._connection.close()


async def _pause(told_ms: float | None) -> None:
    await asyncio.sleep(max(told_ms or _POLL_MS, _POLL_MS) / 1000 / SCALE)


def _result_of(task: Mapping[str, Any]) -> dict[str, Any]:
    if task["status"] != "completed":
        raise Refused(f"the task is {task['status']}: {json.dumps(task.get('error'))}")
    found: dict[str, Any] = task["result"]
    return found


def _text(result: Mapping[str, Any]) -> str:
    """What a model sees of a result: its text."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
