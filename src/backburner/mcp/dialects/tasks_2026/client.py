"""Client side of the 2026-07-28 tasks extension, also for the SDK's own `Client`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from ....errors import ConnectionLost, TaskWasCancelled
from ...connection import Connection, Link
from ...sdk import answer_by_callbacks, progress_callback_of_call
from ...updates import Update
from ..client import ClientDialect, Subscription
from . import wire

_POLL_S = 1.0

OnUpdate = Callable[[dict[str, Any]], Awaitable[None]]


class CreatedTask(types.Result):
    """`CreateTaskResult`; `tasks/get` returns its other fields."""

    task_id: str
    result_type: Literal["task"] = "task"


class _TaskRequest(types.Request[dict[str, Any], str]):
    """Any `tasks/*` request; over HTTP its `Mcp-Name` is the task id."""

    name_param = "taskId"


class _AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


class TasksExtension(ClientExtension):
    """Waits for the tasks of tool calls, and answers their questions by the client's callbacks.

    `on_update` gets each status of a task, as `tasks/get` returns it. A call's `progress_callback` gets
    numeric progress.
    """

    identifier = wire.EXTENSION

    def __init__(self, on_update: OnUpdate | None = None) -> None:
        self._on_update = on_update

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type=wire.RESULT_TYPE, model=CreatedTask, resolve=self._resolve)]

    async def _resolve(self, created: CreatedTask, ctx: ClaimContext) -> types.CallToolResult:
        """Poll until the task ends. Raises MCPError for a failed task, and TaskWasCancelled."""
        asked: set[str] = set()
        on_progress, told = progress_callback_of_call(), None
        while True:
            task = await _send(ctx.session, wire.GET, created.task_id)
            progress = wire.progress_in(task)
            if on_progress is not None and progress is not None and progress != told:
                told = progress
                await on_progress(*progress)
            if self._on_update is not None:
                await self._on_update(task)
            match task["status"]:
                case "completed":
                    return types.CallToolResult.model_validate(task["result"])
                case "failed":
                    error = task["error"]
                    raise MCPError(error["code"], error["message"], error.get("data"))
                case "cancelled":
                    raise TaskWasCancelled(task_id=created.task_id)
                case "input_required":
                    new = {key: value for key, value in task["inputRequests"].items() if key not in asked}
                    asked.update(new)
                    answers = await answer_by_callbacks(ctx.session, new)
                    if answers:
                        await _send(ctx.session, wire.UPDATE, created.task_id, inputResponses=answers)
                        continue
            await asyncio.sleep(wire.poll_interval_s(task) or _POLL_S)


async def _send(session: ClientSession, method: str, task_id: str, **params: Any) -> dict[str, Any]:
    request = _TaskRequest(method=method, params=wire.named(task_id, **params))
    result = await session.send_request(request, _AnyResult)
    return result.model_dump(by_alias=True, mode="json")


_LISTEN_AGAIN_S = 1.0
_listen_ids = itertools.count(1)


class Tasks2026Client(ClientDialect):
    """For servers that create tasks once the extension is declared."""

    name: ClassVar[str] = wire.NAME

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def task_in(self, result: Mapping[str, Any], link: Link) -> str | None:
        return wire.task_in(result)

    def heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        return wire.task_in_news(params) if method == wire.NEWS else None

    def can_resume(self, task_id: str, link: Link, *, own: bool) -> bool:
        return link.modern and wire.EXTENSION in (link.capabilities.get("extensions") or {})

    async def _request(self, method: str, task_id: str, **more: Any) -> dict[str, Any]:
        return await self._connection.request(method, wire.named(task_id, **more), name=task_id)

    async def read(self, task_id: str) -> Update:
        task = await self._request(wire.GET, task_id)
        return Update(
            task["taskId"],
            task["status"],
            message=task.get("statusMessage") or "",
            questions=task.get("inputRequests") or {},
            poll_s=wire.poll_interval_s(task),
        )

    async def result(self, task_id: str) -> types.CallToolResult:
        task = await self._request(wire.GET, task_id)
        if task["status"] == "failed":
            error = task["error"]
            raise MCPError(error["code"], error["message"], error.get("data"))
        if task["status"] == "cancelled":
            raise TaskWasCancelled(task_id=task_id)
        return types.CallToolResult.model_validate(task["result"])

    async def cancel(self, task_id: str) -> None:
        await self._request(wire.CANCEL, task_id)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        await self._request(wire.UPDATE, task_id, inputResponses=dict(answers))

    @contextlib.asynccontextmanager
    async def subscribed(self, task_id: str) -> AsyncIterator[Subscription]:
        with self._connection.subscription(task_id) as event:
            subscription = Subscription(event)
            listener = asyncio.ensure_future(self._listen(task_id, subscription))
            try:
                yield subscription
            finally:
                listener.cancel()
                await asyncio.gather(listener, return_exceptions=True)

    async def _listen(self, task_id: str, subscription: Subscription) -> None:
        """Keep a subscription open; without one the bell is not trusted."""
        wanted = {"notifications": {wire.TASK_IDS: [task_id]}}
        while True:
            with contextlib.suppress(ConnectionError, ConnectionLost):
                link = await self._connection.link()
                sent = link.request(wire.LISTEN, wanted, request_id=f"watch-{next(_listen_ids)}")
                ended = asyncio.ensure_future(sent)
                heard = asyncio.ensure_future(subscription.event.wait())  # its first message
                try:
                    await asyncio.wait({ended, heard}, return_when=asyncio.FIRST_COMPLETED)
                    subscription.reliable = heard.done()
                    await ended
                except MCPError:
                    return  # no subscriptions on this server: poll
                finally:
                    heard.cancel()
                    ended.cancel()
                    subscription.reliable = False
                    subscription.event.set()
            await asyncio.sleep(_LISTEN_AGAIN_S)
