"""The client half: tasks by `tasks/get`, with a subscription to what changes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ....client_errors import ConnectionLost, TaskWasCancelled
from ...client_dialect import Bell, ClientDialect
from ...connection import Connection, Link
from ...updates import Update
from .wire import (
    CANCEL,
    EXTENSION,
    GET,
    LISTEN,
    NAME,
    NEWS,
    TASK_IDS,
    UPDATE,
    named,
    poll_interval_s,
    task_in,
    task_in_news,
)

_LISTEN_AGAIN_S = 1.0
_listen_ids = itertools.count(1)


class Tasks2026Client(ClientDialect):
    """A server that makes tasks of calls by itself, once the extension is declared."""

    name: ClassVar[str] = NAME

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def task_in(self, result: Mapping[str, Any], link: Link) -> str | None:
        return task_in(result)

    def heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        return task_in_news(params) if method == NEWS else None

    def goes_on_with(self, task_id: str, link: Link, *, own: bool) -> bool:
        return link.modern and EXTENSION in (link.capabilities.get("extensions") or {})

    async def _request(self, method: str, task_id: str, **more: Any) -> dict[str, Any]:
        return await self._connection.request(method, named(task_id, **more), name=task_id)

    async def read(self, task_id: str) -> Update:
        task = await self._request(GET, task_id)
        return Update(
            task["taskId"],
            task["status"],
            message=task.get("statusMessage") or "",
            questions=task.get("inputRequests") or {},
            poll_s=poll_interval_s(task),
        )

    async def result(self, task_id: str) -> types.CallToolResult:
        task = await self._request(GET, task_id)
        if task["status"] == "failed":
            error = task["error"]
            raise MCPError(error["code"], error["message"], error.get("data"))
        if task["status"] == "cancelled":
            raise TaskWasCancelled(task_id=task_id)
        return types.CallToolResult.model_validate(task["result"])

    async def cancel(self, task_id: str) -> None:
        await self._request(CANCEL, task_id)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        await self._request(UPDATE, task_id, inputResponses=dict(answers))

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        with self._connection.bell(task_id) as event:
            bell = Bell(event)
            listener = asyncio.ensure_future(self._listen(task_id, bell))
            try:
                yield bell
            finally:
                listener.cancel()
                await asyncio.gather(listener, return_exceptions=True)

    async def _listen(self, task_id: str, bell: Bell) -> None:
        """Hold a subscription open. While there is none the bell is not to be trusted."""
        wanted = {"notifications": {TASK_IDS: [task_id]}}
        while True:
            with contextlib.suppress(ConnectionError, ConnectionLost):
                link = await self._connection.link()
                sent = link.request(LISTEN, wanted, request_id=f"watch-{next(_listen_ids)}")
                ended = asyncio.ensure_future(sent)
                heard = asyncio.ensure_future(bell.event.wait())  # the server begins by telling the state
                try:
                    await asyncio.wait({ended, heard}, return_when=asyncio.FIRST_COMPLETED)
                    bell.trusted = heard.done()
                    await ended
                except MCPError:
                    return  # this server tells nothing by itself: it is polled
                finally:
                    heard.cancel()
                    ended.cancel()
                    bell.trusted = False
                    bell.event.set()
            await asyncio.sleep(_LISTEN_AGAIN_S)
