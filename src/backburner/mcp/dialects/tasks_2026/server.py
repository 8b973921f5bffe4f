"""The tasks extension of MCP 2026-07-28, `io.modelcontextprotocol/tasks`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS

from ....errors import TaskNotFound
from ....service import TaskStatus
from ....tools import ToolSpec
from ...access import TaskAccess
from ...auth import owner_of_request
from ...following import follow
from ...mapping import input_requests, protocol_error, task_2026, wire_errors
from ...outbox import notification
from ...request import RequestContext, check_name_header, is_modern, only_at, require_tasks

_MOST_TASK_IDS = 256


class TaskIdParams(types.RequestParams):
    task_id: str


class UpdateParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any]


class Tasks2026:
    """`tasks/get`, `tasks/update`, `tasks/cancel`, and `notifications/tasks` on `subscriptions/listen`."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access

    async def create(
        self, ctx: RequestContext, spec: ToolSpec, answers: dict[str, Any], resumed: TaskStatus | None = None
    ) -> dict[str, Any]:
        """A `CreateTaskResult`; the task is on disk by then. A resumed call has its task already."""
        status = resumed or await self._access.submit(ctx, spec, answers=answers)
        return {"resultType": "task", **task_2026(status)}

    async def get(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        self._gate(ctx, params.task_id)
        with wire_errors():
            return await self.detailed(await self._access.status(params.task_id))

    async def update(self, ctx: RequestContext, params: UpdateParams) -> dict[str, Any]:
        """Answers are applied when this returns; unknown and answered keys are passed over."""
        only_at(ctx, modern=True)
        self._gate(ctx, params.task_id)
        with wire_errors():
            await self._access.head(params.task_id)
            await self._access.service.aio.answer_input(
                params.task_id, params.input_responses, owner=owner_of_request()
            )
        return {}

    async def cancel(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        self._gate(ctx, params.task_id)
        with wire_errors():
            await self._access.head(params.task_id)
            await self._access.service.aio.cancel(params.task_id, owner=owner_of_request())
        return {}

    def _gate(self, ctx: RequestContext, task_id: str) -> None:
        require_tasks(ctx)
        check_name_header(ctx, task_id)

    async def detailed(self, status: TaskStatus) -> dict[str, Any]:
        """A `DetailedTask`: with its result, its error or its questions, as its status has them."""
        shown, task = task_2026(status), status.task
        if shown["status"] == "completed":
            outcome = await self._access.outcome(task.task_id, task.owner)
            shown["result"] = {**outcome, "resultType": "complete"}
        elif shown["status"] == "failed":
            shown["error"] = protocol_error(task)
        elif shown["status"] == "input_required":
            shown["inputRequests"] = input_requests(status)
        return shown

    # -- subscriptions

    async def listen(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Serve the `taskIds` of a `subscriptions/listen`, on the stream of what the server itself sends."""
        wanted = ((ctx.params or {}).get("notifications") or {}).get("taskIds")
        if wanted is None or not is_modern(ctx):
            return await call_next(ctx)
        require_tasks(ctx)
        honoured = await self._honoured(wanted)
        session = _ListenSession(ctx.session, honoured)
        owner = owner_of_request()

        async def push_all() -> None:
            await session.acknowledged.wait()
            await asyncio.gather(*(self._push(ctx, task_id, owner) for task_id in honoured))

        pushing = asyncio.ensure_future(push_all())
        try:
            return await call_next(replace(ctx, session=session))  # type: ignore[arg-type]
        finally:
            pushing.cancel()

    async def _honoured(self, wanted: Any) -> list[str]:
        """Those of the ids that are the caller's own tasks; about the others the client is told nothing."""
        if not isinstance(wanted, list) or not all(isinstance(task_id, str) for task_id in wanted):
            raise MCPError(INVALID_PARAMS, "notifications.taskIds must be a list of task ids")
        if len(wanted) > _MOST_TASK_IDS:
            raise MCPError(INVALID_PARAMS, f"notifications.taskIds may name at most {_MOST_TASK_IDS} tasks")
        honoured = []
        for task_id in dict.fromkeys(wanted):
            try:
                honoured.append((await self._access.head(task_id)).task_id)
            except TaskNotFound:
                continue
        return honoured

    async def _push(self, ctx: RequestContext, task_id: str, owner: str) -> None:
        """Send the task now, so that nothing is missed since it was made, and after each change."""
        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        try:
            async for status in follow(self._access.service, task_id, owner):
                shown = await self.detailed(status)
                message = notification("notifications/tasks", {**shown, "_meta": meta})
                await ctx.session.send_notification(message, ctx.request_id)
        except (TaskNotFound, KeyError):
            return  # it expired while we looked on


class _ListenSession:
    """The session of a listen request, with the task ids added to the acknowledgement that it sends."""

    def __init__(self, session: Any, task_ids: Sequence[str]) -> None:
        self._session = session
        self._task_ids = list(task_ids)
        self.acknowledged = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(
        self, message: Any, related_request_id: types.RequestId | None = None
    ) -> None:
        if isinstance(message, types.SubscriptionsAcknowledgedNotification):
            asked = message.params.notifications.model_dump(by_alias=True, exclude_none=True)
            message.params.notifications = types.SubscriptionFilter.model_validate(
                {**asked, "taskIds": self._task_ids}
            )
            await self._session.send_notification(message, related_request_id)
            self.acknowledged.set()
        else:
            await self._session.send_notification(message, related_request_id)
