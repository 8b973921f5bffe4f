"""The client half: a job is asked about by the task tools, where the server has them, or else by polling."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR

from ....errors import NotOffered
from ...client_dialect import Bell, ClientDialect, bell_of
from ...connection import Connection, Link
from ...updates import TaskProgress, Update
from ..task_tools.client import TaskToolsClient
from .wire import (
    ASYNC,
    NAME,
    POLL,
    RESULT_NEWS,
    body_in,
    named,
    task_in,
    task_in_news,
    tool_result,
    words_of,
)


class TwoStageClient(ClientDialect):
    """A server that hands out a `job_id` in place of a result."""

    name: ClassVar[str] = NAME
    news: ClassVar[tuple[str, ...]] = (RESULT_NEWS,)

    def __init__(self, connection: Connection, tools: TaskToolsClient, *, asks: bool) -> None:
        """`asks` for handles; who does not may be given one all the same."""
        self._asks = asks
        self._connection = connection
        self._tools = tools

    def ask_for_task(self, link: Link, tool: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Say that we want the handle, and can take its notifications."""
        return {**params, "_meta": {**params.get("_meta", {}), ASYNC: True}} if self._asks else params

    def task_in(self, result: Mapping[str, Any]) -> str | None:
        return task_in(result)

    def task_in_news(self, params: Mapping[str, Any]) -> str | None:
        return task_in_news(params)

    def goes_on_with(self, task_id: str, link: Link, *, own: bool) -> bool:
        return True

    async def _poll(self, task_id: str) -> dict[str, Any]:
        body = body_in(await self._connection.request(POLL, named(task_id))) or {}
        if not body.get("success"):
            raise MCPError(INTERNAL_ERROR, words_of(body) or "Job not found")
        return dict(body["data"])

    async def read(self, task_id: str) -> Update:
        if await self._tools.offered():
            return await self._tools.read(task_id)
        job = await self._poll(task_id)
        if job["status"] == "complete":
            return Update(task_id, "completed")
        share = job.get("progress")
        return Update(
            task_id, "working", progress=None if share is None else TaskProgress(percent=100 * share)
        )

    async def result(self, task_id: str) -> types.CallToolResult:
        if await self._tools.offered():
            return await self._tools.result(task_id)
        return tool_result((await self._poll(task_id))["result"])

    async def cancel(self, task_id: str) -> None:
        await self._tools.cancel(task_id)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="a way to answer questions", task_id=task_id)

    def listening(self, task_id: str) -> contextlib.AbstractAsyncContextManager[Bell]:
        return bell_of(self._connection, task_id)
