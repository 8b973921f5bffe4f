"""The client half: tasks by `tasks/get` and `tasks/result`, and questions by requests of the server's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

from ....client_errors import ConnectionLost, TaskWasCancelled
from ...client_dialect import PROGRESS, Bell, ClientDialect
from ...connection import Connection, Link
from ...updates import Update
from .questions import Questions
from .wire import (
    CANCEL,
    GET,
    NAME,
    NEWS,
    RESULT,
    asking,
    can_be_task,
    named,
    offered,
    poll_interval_s,
    task_in,
    task_in_news,
)


class Tasks2025Client(ClientDialect):
    """A server that makes a task of a call when the call asks for one."""

    name: ClassVar[str] = NAME

    def __init__(self, connection: Connection, questions: Questions) -> None:
        self._connection = connection
        self._questions = questions
        self._parked: dict[str, asyncio.Future[None]] = {}

    def ask_for_task(self, link: Link, tool: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        return asking(params) if self._offered(link) and can_be_task(tool) else params

    def task_in(self, result: Mapping[str, Any], link: Link) -> str | None:
        return task_in(result)

    def heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        return task_in_news(params) if method in (NEWS, PROGRESS) else None

    def goes_on_with(self, task_id: str, link: Link, *, own: bool) -> bool:
        return self._offered(link)

    def _offered(self, link: Link) -> bool:
        return not link.modern and offered(link.capabilities)

    async def read(self, task_id: str) -> Update:
        task = await self._connection.request(GET, named(task_id))
        if task["status"] == "input_required" and task_id not in self._parked:
            self._parked[task_id] = asyncio.ensure_future(self._park(task_id))
        return Update(
            task["taskId"],
            task["status"],
            message=task.get("statusMessage") or "",
            questions=self._questions.open(task_id),
            poll_s=poll_interval_s(task),
        )

    async def _park(self, task_id: str) -> None:
        """Servers of this revision ask their questions while a `tasks/result` waits."""
        with contextlib.suppress(MCPError, ConnectionLost):
            await self._connection.request(RESULT, named(task_id))

    async def result(self, task_id: str) -> types.CallToolResult:
        try:
            result = await self._connection.request(RESULT, named(task_id))
        except MCPError as error:
            if (await self.read(task_id)).status == "cancelled":
                raise TaskWasCancelled(task_id=task_id) from error
            raise
        return types.CallToolResult.model_validate(result)

    async def cancel(self, task_id: str) -> None:
        try:
            await self._connection.request(CANCEL, named(task_id))
        except MCPError:
            if not (await self.read(task_id)).finished:  # this revision refuses what is over already
                raise

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        self._questions.answer(task_id, answers)

    @contextlib.asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Bell]:
        with self._connection.bell(task_id) as event:
            try:
                yield Bell(event)  # it tells of statuses, not of all progress, so it is polled as well
            finally:
                if (parked := self._parked.pop(task_id, None)) is not None:
                    parked.cancel()
