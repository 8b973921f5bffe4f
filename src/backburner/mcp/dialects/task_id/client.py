"""The client half: a handle for a call that is pending at the host's poller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

import mcp_types as types

from ....client_errors import NotOffered, UnknownHandle
from ...client_dialect import Bell, ClientDialect
from ...connection import Link
from ...updates import Update
from .host_poller import HostPoller
from .wire import NAME


class TaskIdClient(ClientDialect):
    """Calls of the tools that the poller is for are acknowledged only; the prompt log has their results."""

    name: ClassVar[str] = NAME

    def __init__(self, poller: HostPoller) -> None:
        self._poller = poller

    async def start(self, tool_name: str, arguments: Mapping[str, Any]) -> str | None:
        return await self._poller.start(tool_name, arguments) if self._poller.is_for(tool_name) else None

    def goes_on_with(self, task_id: str, link: Link, *, own: bool) -> bool:
        return own or self._poller.is_pending(task_id)

    async def read(self, task_id: str) -> Update:
        call = self._poller.pending.get(task_id)
        if call is None:
            raise UnknownHandle(task_id=task_id)
        if call.prompt is not None:
            return Update(task_id, "completed")
        status = await self._poller.status(task_id)
        return Update(task_id, "working", message=str((status or {}).get("status") or ""))

    async def result(self, task_id: str) -> types.CallToolResult:
        return await self._poller.wait(task_id)

    async def cancel(self, task_id: str) -> None:
        raise NotOffered(what="a way to cancel", task_id=task_id)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="questions", task_id=task_id)

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        bell = Bell(asyncio.Event())

        async def ring() -> None:
            await self._poller.arrived(task_id)
            bell.event.set()

        ringing = asyncio.ensure_future(ring())
        try:
            yield bell
        finally:
            ringing.cancel()
            await asyncio.gather(ringing, return_exceptions=True)
