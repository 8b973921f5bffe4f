"""The tasks of MCP 2025-11-25."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

from ....lifecycle import State
from ....service import TaskStatus
from ....tools import ToolSpec
from ...access import TaskAccess
from ...auth import owner_of_request
from ...following import follow
from ...mapping import protocol_error, status_2025, task_2025, tool_raised, wire_errors
from ...outbox import Outbox, outbox_of
from ...questions import Asker
from ...request import RELATED_TASK, RequestContext, only_at, request_meta
from ..tasks_2026.server import TaskIdParams

logger = logging.getLogger(__name__)

CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
_IMMEDIATE_RESPONSE = "io.modelcontextprotocol/model-immediate-response"
_PAGE = 50
#: A client that sees `input_required` either parks a `tasks/result`, and is asked there, or goes on
#: polling and wants to be asked by itself. So long after a poll the second is taken to be the case.
_PARKING_S = 0.3
#: And so long a client that does not even poll has.
_POLLING_S = 2.0


class ListParams(types.PaginatedRequestParams):
    pass


class Tasks2025:
    """`tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`, and what is pushed to the session."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._attendants: dict[str, Attendant] = {}

    async def create(self, ctx: RequestContext, spec: ToolSpec) -> dict[str, Any]:
        """That revision's `CreateTaskResult`."""
        ttl = (ctx.params or {})["task"].get("ttl")
        with wire_errors():
            status = await self._access.submit(ctx, spec, ttl_s=None if ttl is None else ttl / 1000)
        self._attend(ctx, status, request_meta(ctx).get("progressToken"))
        words = f"{spec.name} is working on it as task {status.task_id}; the result will follow."
        return {"task": task_2025(status), "_meta": {_IMMEDIATE_RESPONSE: words}}

    async def get(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        with wire_errors():
            status = await self._access.status(params.task_id)
        attendant = self._attend(ctx, status, None)
        if attendant is not None and status.task.state is State.INPUT_REQUIRED:
            attendant.polled()
        return task_2025(status)

    async def result(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        """Wait for the end, asking the task's questions meanwhile; then what the call itself would give."""
        only_at(ctx, modern=False)
        related = {RELATED_TASK: {"taskId": params.task_id}}
        with wire_errors():
            status = await self._access.status(params.task_id)
            attendant = self._attend(ctx, status, None)
            if attendant is not None:
                status = await attendant.park(ctx)
            task = status.task
            if task.state is State.SUCCEEDED or tool_raised(task):
                outcome = await self._access.outcome(task.task_id, task.owner)
                return {**outcome, "_meta": {**outcome.get("_meta", {}), **related}}
        if task.state is State.CANCELLED:
            raise MCPError(INTERNAL_ERROR, "The task was cancelled", {"_meta": related})
        error = protocol_error(task)
        raise MCPError(error["code"], error["message"], error.get("data"))

    async def list(self, ctx: RequestContext, params: ListParams) -> dict[str, Any]:
        only_at(ctx, modern=False)
        states = tuple(state for state in State if state is not State.EXPIRED)
        with wire_errors():
            service = self._access.service
            page = await service.aio.list(
                owner=owner_of_request(), states=states, cursor=params.cursor, limit=_PAGE
            )
            shown = await service.aio.run(lambda: [service.view(task) for task in page.tasks])
        result: dict[str, Any] = {"tasks": [task_2025(status) for status in shown]}
        return result if page.next_cursor is None else {**result, "nextCursor": page.next_cursor}

    async def cancel(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        with wire_errors():
            status = await self._access.status(params.task_id)
            if status.task.finished:
                words = f"Cannot cancel task: it is {status_2025(status.task)} already"
                raise MCPError(INVALID_PARAMS, words)
            service, owner = self._access.service, owner_of_request()
            await service.aio.cancel(params.task_id, owner=owner)
            # This revision wants `cancelled` in the answer, so the tool is given a moment to stop.
            grace = self._access.settings.cancel_grace_s + 2
            status = await service.aio.wait(params.task_id, grace, owner=owner)
        return task_2025(status)

    def _attend(self, ctx: RequestContext, status: TaskStatus, token: Any) -> Attendant | None:
        """See to it that the session hears of the task from now on."""
        if status.task.finished:
            return None
        attendant = self._attendants.get(status.task_id)
        if attendant is None:
            attendant = Attendant(self._access, status, token)
            self._attendants[status.task_id] = attendant
            attendant.done.add_done_callback(lambda done: self._attended(status.task_id, done))
        attendant.meet(ctx)
        return attendant

    def _attended(self, task_id: str, done: asyncio.Future[TaskStatus]) -> None:
        self._attendants.pop(task_id, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.info("Task %s is not attended to any more: %s", task_id, error)


class Attendant:
    """Follows one task for the session that cares for it: status, progress and questions go there."""

    def __init__(self, access: TaskAccess, status: TaskStatus, token: Any) -> None:
        self._access = access
        self._last = status
        self._asker = Asker(access.service, status.task_id, status.task.owner)
        self._token = token
        self._percent = -1.0
        self._parked: list[RequestContext] = []
        self._ctx: RequestContext | None = None
        self._outbox: Outbox | None = None
        self._ask_timer: asyncio.TimerHandle | None = None
        self.done = asyncio.ensure_future(self._attend())

    def meet(self, ctx: RequestContext) -> None:
        """The session that last asked about the task is the one that hears of it."""
        self._ctx, self._outbox = ctx, outbox_of(ctx)

    def polled(self) -> None:
        """The client saw that the task waits for an answer."""
        self._ask_later(_PARKING_S)

    async def park(self, ctx: RequestContext) -> TaskStatus:
        """Wait for the end of the task, as a `tasks/result` does; questions go out on its stream."""
        self._parked.append(ctx)
        self._ask_parked()
        try:
            return await asyncio.shield(self.done)
        finally:
            self._parked.remove(ctx)
            if not self._parked:
                self._asker.leave(request=True)

    async def _attend(self) -> TaskStatus:
        task = self._last.task
        before = None
        async for status in follow(self._access.service, task.task_id, task.owner):
            self._last = status
            shown = task_2025(status)
            if self._outbox is not None and shown["status"] != before:
                self._outbox.put(f"status {task.task_id}", "notifications/tasks/status", shown)
            before = shown["status"]
            self._push_progress(status)
            if status.questions:
                self._ask_parked()
                self._ask_later(_POLLING_S)
        self._asker.leave(request=False)
        return self._last

    def _push_progress(self, status: TaskStatus) -> None:
        progress = status.task.progress
        if self._token is None or self._outbox is None or progress is None or progress.percent is None:
            return
        if progress.percent > self._percent:
            self._percent = progress.percent
            params = {
                "progressToken": self._token,
                "progress": progress.percent,
                "total": 100,
                "_meta": {RELATED_TASK: {"taskId": status.task_id}},
            }
            if progress.message:
                params["message"] = progress.message
            self._outbox.put(f"progress {status.task_id}", "notifications/progress", params)

    def _ask_parked(self) -> None:
        if self._parked and self._last.questions:
            ctx = self._parked[-1]
            self._asker.ask(list(self._last.questions), ctx.session, ctx.request_id)

    def _ask_later(self, delay_s: float) -> None:
        """Ask outside any request, unless a `tasks/result` comes before that."""
        due = asyncio.get_running_loop().time() + delay_s
        if self._ask_timer is not None:
            if self._ask_timer.when() <= due and not self._ask_timer.cancelled():
                return
            self._ask_timer.cancel()
        self._ask_timer = asyncio.get_running_loop().call_later(delay_s, self._ask_now)

    def _ask_now(self) -> None:
        self._ask_timer = None
        if self._last.questions and not self._parked and self._ctx is not None and not self.done.done():
            self._asker.ask(list(self._last.questions), self._ctx.session, None)
