"""The server half: `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`, for calls that want a task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from ....lifecycle import State
from ....log_lines import about
from ....service import TaskStatus
from ....tools import ToolSpec
from ...access import TaskAccess
from ...jsonrpc_errors import jsonrpc_errors, task_failure
from ...outcomes import tool_raised
from ...progress_tokens import CallToken
from ...request import RequestContext, owner_of_request
from ...server_dialect import Method, ServerDialect, SlowCall
from .attendant import Attendant
from .wire import (
    CANCEL,
    CAPABILITY,
    GET,
    LIST,
    NAME,
    RESULT,
    ListParams,
    TaskIdParams,
    asked_for,
    created,
    described,
    related,
    status_of,
    task_shown,
    ttl_s,
)

logger = logging.getLogger(__name__)

_PAGE = 50


class Tasks2025(ServerDialect):
    """For clients of that revision, call by call: one with `task` becomes a task."""

    def __init__(self, access: TaskAccess) -> None:
        self._access = access
        self._attendants: dict[str, Attendant] = {}

    def methods(self) -> Mapping[str, Method]:
        return {
            GET: Method(TaskIdParams, self.get),
            RESULT: Method(TaskIdParams, self.result),
            LIST: Method(ListParams, self.list),
            CANCEL: Method(TaskIdParams, self.cancel),
        }

    def speaks(self, ctx: RequestContext) -> bool:
        return ctx.protocol_version == NAME

    def announce(self, capabilities: dict[str, Any], version: str) -> None:
        if version == NAME:
            capabilities["tasks"] = dict(CAPABILITY)

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        if not self.speaks(ctx):
            return tool
        return described(tool, "forbidden" if spec.task == "never" else spec.task)

    def refuse(self, ctx: RequestContext, tool_name: Any) -> None:
        if self._wants_task(ctx):
            raise MCPError(
                METHOD_NOT_FOUND, f"Tool {tool_name!r} cannot be called as a task: call it without `task`"
            )

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        if not self.speaks(ctx) or spec.requires_task_id:
            return False
        if spec.task == "never":
            self.refuse(ctx, spec.name)
        if spec.task == "required" and not self._wants_task(ctx):
            # Older revisions know no tasks at all: there the tool is answered like any other.
            raise MCPError(
                METHOD_NOT_FOUND, f"Tool {spec.name!r} can only be called as a task: add `task` to the call"
            )
        return self._wants_task(ctx)

    def _wants_task(self, ctx: RequestContext) -> bool:
        return self.speaks(ctx) and asked_for(ctx.params or {}) is not None

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        """That revision's `CreateTaskResult`."""
        asked = asked_for(call.ctx.params or {}) or {}
        with jsonrpc_errors():
            status = await self._access.submit(call.ctx, call.spec, ttl_s=ttl_s(asked))
        self._attend(call.ctx, status, call.token)
        return created(status)

    # -- methods

    async def get(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        with jsonrpc_errors():
            status = await self._access.status(params.task_id)
        self._access.open_calls.heard_of(params.task_id)
        attendant = self._attend(ctx, status, None)
        if attendant is not None and status.task.state is State.INPUT_REQUIRED:
            attendant.polled()
        return task_shown(status)

    async def result(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        """Wait for the end, asking the task's questions meanwhile; then what the call itself would give."""
        about = related(params.task_id)
        with jsonrpc_errors():
            status = await self._access.status(params.task_id)
            attendant = self._attend(ctx, status, None)
            if attendant is not None:
                with self._access.open_calls.held(params.task_id, ctx):
                    status = await attendant.park(ctx)
            task = status.task
            self._access.open_calls.close(task.task_id)
            if task.state is State.SUCCEEDED or tool_raised(task):
                outcome = await self._access.outcome(task)
                return {**outcome, "_meta": {**outcome.get("_meta", {}), **about}}
        if task.state is State.CANCELLED:
            why = f": {task.cancel_reason}" if task.cancel_reason else ""
            raise MCPError(INTERNAL_ERROR, f"The task was cancelled{why}", {"_meta": about})
        raise task_failure(task)

    async def list(self, ctx: RequestContext, params: ListParams) -> dict[str, Any]:
        states = tuple(state for state in State if state is not State.EXPIRED)
        with jsonrpc_errors():
            service = self._access.service
            page = await service.aio.list(
                owner=owner_of_request(), states=states, cursor=params.cursor, limit=_PAGE
            )
            shown = await service.aio.run(lambda: [service.view(task) for task in page.tasks])
        result: dict[str, Any] = {"tasks": [task_shown(status) for status in shown]}
        return result if page.next_cursor is None else {**result, "nextCursor": page.next_cursor}

    async def cancel(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        with jsonrpc_errors():
            status = await self._access.status(params.task_id)
            if status.task.finished:
                words = f"Cannot cancel task: it is {status_of(status.task)} already"
                raise MCPError(INVALID_PARAMS, words)
            service, owner = self._access.service, owner_of_request()
            await service.aio.cancel(params.task_id, owner=owner)
            # This revision wants `cancelled` in the answer, so the tool is given a moment to stop.
            grace = self._access.settings.supervisor.cancel_grace_s + 2
            status = await service.aio.wait(params.task_id, grace, owner=owner)
        return task_shown(status)

    # -- what is pushed to the session

    def _attend(self, ctx: RequestContext, status: TaskStatus, token: CallToken | None) -> Attendant | None:
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
            logger.info("Task %s is not attended to any more: %s", task_id, error, extra=about(task_id))
