"""The tasks extension for the SDK's own `Client`.

async with Client(url, extensions=[TasksExtension()]) as client:
    result = await client.call_tool("relax", {...})      # a task is waited for, unseen
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from ....client_errors import TaskWasCancelled
from ...callbacks import answer_by_callbacks
from ...sdk import progress_callback_of_call
from .wire import EXTENSION, GET, RESULT_TYPE, UPDATE, named, poll_interval_s, progress_in

_POLL_S = 1.0

OnUpdate = Callable[[dict[str, Any]], Awaitable[None]]


class CreatedTask(types.Result):
    """`CreateTaskResult`, whose other fields are read again by `tasks/get`."""

    task_id: str
    result_type: Literal["task"] = "task"


class _TaskRequest(types.Request[dict[str, Any], str]):
    """Any `tasks/*` request; over HTTP its `Mcp-Name` is the task's id."""

    name_param = "taskId"


class _AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


class TasksExtension(ClientExtension):
    """Waits for the tasks that tool calls become, and answers their questions by the client's callbacks.

    `on_update` gets each state of a task that is waited for, as `tasks/get` shows it. A `progress_callback`
    of the call hears how far it is, where its server says so in numbers.
    """

    identifier = EXTENSION

    def __init__(self, on_update: OnUpdate | None = None) -> None:
        self._on_update = on_update

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type=RESULT_TYPE, model=CreatedTask, resolve=self._resolve)]

    async def _resolve(self, created: CreatedTask, ctx: ClaimContext) -> types.CallToolResult:
        """Poll until the end. Raises MCPError for a task that failed, and TaskWasCancelled."""
        asked: set[str] = set()
        on_progress, told = progress_callback_of_call(), None
        while True:
            task = await _send(ctx.session, GET, created.task_id)
            progress = progress_in(task)
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
                        await _send(ctx.session, UPDATE, created.task_id, inputResponses=answers)
                        continue
            await asyncio.sleep(poll_interval_s(task) or _POLL_S)


async def _send(session: ClientSession, method: str, task_id: str, **params: Any) -> dict[str, Any]:
    request = _TaskRequest(method=method, params=named(task_id, **params))
    result = await session.send_request(request, _AnyResult)
    return result.model_dump(by_alias=True, mode="json")
