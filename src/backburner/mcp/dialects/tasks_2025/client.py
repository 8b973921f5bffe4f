"""Client side of the 2025-11-25 tasks: `tasks/get`, `tasks/result` and the server's questions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import mcp_types as types
from mcp.client.session import ClientRequestContext, ElicitationFnT
from mcp.shared.exceptions import MCPError

from ....errors import ConnectionLost, TaskWasCancelled
from ...connection import Connection, Link
from ...updates import Update
from ..client import PROGRESS, ClientDialect, Subscription
from . import wire

_numbers = itertools.count(1)


@dataclass(frozen=True)
class _Open:
    request: dict[str, Any]
    answer: asyncio.Future[types.ElicitResult]


class Questions:
    """Elicitation callback of the client: the user's own, or the holder of the task's handle."""

    def __init__(self, callback: ElicitationFnT | None) -> None:
        self.callback = callback
        #: Called with the id of a task that has a new question.
        self.ring: Callable[[str], None] = lambda task_id: None
        #: Tasks whose questions are answered through their handle.
        self.attended: set[str] = set()
        self._open: dict[str, dict[str, _Open]] = {}

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        if self.callback is not None:
            return await self.callback(context, params)
        meta: Mapping[str, Any] = context.meta or {}
        task_id = wire.related_task(meta)
        if task_id is None or task_id not in self.attended:
            return types.ElicitResult(action="cancel")
        key = f"question-{next(_numbers)}"
        shown = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        answer: asyncio.Future[types.ElicitResult] = asyncio.get_running_loop().create_future()
        asked = self._open.setdefault(task_id, {})
        asked[key] = _Open({"method": "elicitation/create", "params": shown}, answer)
        self.ring(task_id)
        try:
            return await answer
        finally:
            asked.pop(key, None)

    def open(self, task_id: str) -> dict[str, dict[str, Any]]:
        return {key: question.request for key, question in self._open.get(task_id, {}).items()}

    def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        """Resolve open questions; other keys are ignored, as in `tasks/update`."""
        asked = self._open.get(task_id, {})
        for key, answer in answers.items():
            if key in asked and not asked[key].answer.done():
                asked[key].answer.set_result(types.ElicitResult.model_validate(answer))


class Tasks2025Client(ClientDialect):
    """For servers that create a task when the call asks for one."""

    name: ClassVar[str] = wire.NAME

    def __init__(self, connection: Connection, questions: Questions) -> None:
        self._connection = connection
        self._questions = questions
        self._parked: dict[str, asyncio.Future[None]] = {}

    def ask_for_task(self, link: Link, tool: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        return wire.asking(params) if self._offered(link) and wire.can_be_task(tool) else params

    def task_in(self, result: Mapping[str, Any], link: Link) -> str | None:
        return wire.task_in(result)

    def heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        return wire.task_in_news(params) if method in (wire.NEWS, PROGRESS) else None

    def can_resume(self, task_id: str, link: Link, *, own: bool) -> bool:
        return self._offered(link)

    def _offered(self, link: Link) -> bool:
        return not link.modern and wire.offered(link.capabilities)

    async def read(self, task_id: str) -> Update:
        task = await self._connection.request(wire.GET, wire.named(task_id))
        if task["status"] == "input_required" and task_id not in self._parked:
            self._parked[task_id] = asyncio.ensure_future(self._park(task_id))
        return Update(
            task["taskId"],
            task["status"],
            message=task.get("statusMessage") or "",
            questions=self._questions.open(task_id),
            poll_s=wire.poll_interval_s(task),
        )

    async def _park(self, task_id: str) -> None:
        """Wait in `tasks/result`, during which servers of this revision send their questions."""
        with contextlib.suppress(MCPError, ConnectionLost):
            await self._connection.request(wire.RESULT, wire.named(task_id))

    async def result(self, task_id: str) -> types.CallToolResult:
        try:
            result = await self._connection.request(wire.RESULT, wire.named(task_id))
        except MCPError as error:
            if (await self.read(task_id)).status == "cancelled":
                raise TaskWasCancelled(task_id=task_id) from error
            raise
        return types.CallToolResult.model_validate(result)

    async def cancel(self, task_id: str) -> None:
        try:
            await self._connection.request(wire.CANCEL, wire.named(task_id))
        except MCPError:
            if not (await self.read(task_id)).finished:  # this revision refuses finished tasks
                raise

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        self._questions.answer(task_id, answers)

    @contextlib.asynccontextmanager
    async def subscribed(self, task_id: str) -> AsyncIterator[Subscription]:
        with self._connection.subscription(task_id) as event:
            try:
                yield Subscription(event)  # not trusted: it reports statuses, but not all progress
            finally:
                if (parked := self._parked.pop(task_id, None)) is not None:
                    parked.cancel()
