"""Server side of the 2026-07-28 tasks extension: `tasks/*` methods and `subscriptions/listen`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ....core.lifecycle import State
from ....core.task import Task
from ....errors import TaskNotFound
from ....service.tasks import TaskStatus
from ....tools.spec import ToolSpec
from ...access import TaskAccess
from ...callers import PerCaller
from ...client_timeouts import spends_turn_on_task
from ...errors import jsonrpc_errors, task_error
from ...notifications import notification
from ...open_calls import mark_joined
from ...questions import InputRounds, input_requests
from ...requests import (
    RequestContext,
    arguments_of,
    client_of,
    declares,
    is_followup_round,
    is_modern,
    missing_capability,
    owner_of_request,
)
from ...results import Client
from ...updates import as_deleted, follow
from ..server import CallHolder, Interceptor, Method, ServerDialect, SlowCall
from . import wire

_TASKS = types.ClientCapabilities(extensions={wire.EXTENSION: {}})
_UNDER_WAY = frozenset({State.QUEUED, State.SCHEDULED, State.RUNNING})
#: A task that is so much longer under way than estimated is not expected to end soon.
_OVERDUE_S = 1.0
#: Grace time before a call becomes a task, unless the task is known to last longer.
_GRACE_S = 5.0
#: Calls of one turn that a host makes in series follow each other sooner than this.
_SAME_TURN_S = 1.0


class Tasks2026(ServerDialect):
    """For clients that declare the extension: a call of a slow tool becomes a task.

    If each task costs the host a turn of its model, a call that ends soon is answered with its result.
    """

    def __init__(self, access: TaskAccess, rounds: InputRounds, holder: CallHolder) -> None:
        self._access = access
        self._rounds = rounds
        self._holder = holder
        self._last_task_at: PerCaller[float] = PerCaller()

    def methods(self) -> Mapping[str, Method]:
        return {
            wire.GET: Method(wire.TaskIdParams, self.get),
            wire.UPDATE: Method(wire.UpdateParams, self.update),
            wire.CANCEL: Method(wire.TaskIdParams, self.cancel),
        }

    def interceptors(self) -> Mapping[str, Interceptor]:
        return {wire.LISTEN: self.listen}

    def speaks(self, ctx: RequestContext) -> bool:
        return is_modern(ctx)

    def announce(self, capabilities: dict[str, Any], version: str) -> None:
        if version in MODERN_PROTOCOL_VERSIONS:
            # Exactly `{}`: clients take anything else for another version of the extension.
            capabilities["extensions"] = {**(capabilities.get("extensions") or {}), wire.EXTENSION: {}}

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        if not is_modern(ctx) or spec.task == "never" or spec.requires_task_id:
            return False
        if spec.task == "required":
            _require_tasks(ctx)
        return declares(ctx, _TASKS)

    def needs_no_stream(self, method: str, params: Mapping[str, Any], spec: ToolSpec | None) -> bool:
        if spec is None:
            return method in self.methods()
        if spec.task == "never" or spec.requires_task_id or not wire.asks_for_tasks(params):
            return False
        return not self._has_grace(spec, Client(*wire.client_in(params), over_http=True))

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        """Return the result if the task ends within its grace time, or else a `CreateTaskResult`.

        The task is on disk by then; a follow-up round has its task already.
        """
        if is_followup_round(call.ctx):
            status = await self._rounds.resume(call.ctx, call.spec)
        else:
            status = await self._access.submit(call.ctx, call.spec, answers=call.answers)
        client = Client(*client_of(call.ctx), over_http=call.ctx.request is not None)
        if not self._has_grace(call.spec, client):
            return wire.created(status)
        grace_s = await self._grace_s(call.ctx, status)
        if grace_s or status.task.finished:
            # The extension has no progress notifications, so the call is held without any.
            result = await self._holder.hold(call, status, grace_s, quiet=True)
            if result is not None:
                return mark_joined(result, status, typed=call.spec.output_schema is not None)
            now = await self._access.service.aio.status(status.task_id, owner=status.task.owner)
            status = replace(now, joined=status.joined)
        self._last_task_at.put(call.ctx, time.monotonic())
        return wire.created(status)

    def _has_grace(self, spec: ToolSpec, client: Client) -> bool:
        """Return whether a call of the tool may be held before it becomes a task."""
        set_s = self._access.settings.mcp.task_grace_s
        return spec.task != "required" and (spends_turn_on_task(client) if set_s is None else set_s > 0)

    async def _grace_s(self, ctx: RequestContext, status: TaskStatus) -> float:
        """Return how long to hold the call; 0 if its task is expected to last longer.

        Also 0 right after a call of the same client that became a task: hosts make the calls of one turn in
        series, and each would wait for nothing.
        """
        became_at = self._last_task_at.get(ctx)
        if became_at is not None and time.monotonic() - became_at < _SAME_TURN_S:
            return 0
        service, set_s = self._access.service, self._access.settings.mcp.task_grace_s
        longest_s = _GRACE_S if set_s is None else set_s
        left_s = await service.aio.look(service.known_left_s, status, arguments_of(ctx))
        if left_s is not None and left_s > longest_s:
            return 0
        if set_s is None:
            return _GRACE_S
        await self._access.patience.refresh()
        patience_s = self._access.patience.hold_s(ctx, silent=True)
        return set_s if patience_s is None else min(set_s, patience_s)

    # -- methods

    async def get(self, ctx: RequestContext, params: wire.TaskIdParams) -> dict[str, Any]:
        """Return the task. One that should end before the client's next poll is awaited until that time."""
        self._gate(ctx, params.task_id)
        self._access.open_calls.touch(params.task_id)
        with jsonrpc_errors():
            status = await self._access.polled(params.task_id)
            if self._ends_before_next_poll(status):
                poll_s, owner = status.poll_after_ms / 1000, owner_of_request()
                with contextlib.suppress(TaskNotFound):  # deleted meanwhile
                    await self._access.service.aio.wait(
                        params.task_id, poll_s, owner=owner, until=_has_stopped
                    )
                status = await self._access.polled(params.task_id)
            return await self.detailed(status)

    async def update(self, ctx: RequestContext, params: wire.UpdateParams) -> dict[str, Any]:
        """Store the answers; unknown and answered keys are ignored."""
        self._gate(ctx, params.task_id)
        with jsonrpc_errors():
            await self._access.head(params.task_id)
            await self._access.service.aio.answer_input(
                params.task_id, params.input_responses, owner=owner_of_request()
            )
        return {}

    async def cancel(self, ctx: RequestContext, params: wire.TaskIdParams) -> dict[str, Any]:
        self._gate(ctx, params.task_id)
        with jsonrpc_errors():
            await self._access.head(params.task_id)
            await self._access.service.aio.cancel(params.task_id, owner=owner_of_request())
        return {}

    def _ends_before_next_poll(self, status: TaskStatus) -> bool:
        task = status.task
        if task.state not in _UNDER_WAY or task.estimate_s is None or status.eta_s is None:
            return False
        age_s = (self._access.app.store.now_ms() - (task.started_at or task.submitted_at)) / 1000
        return status.eta_s * 1000 <= status.poll_after_ms and age_s < task.estimate_s + _OVERDUE_S

    def _gate(self, ctx: RequestContext, task_id: str) -> None:
        _require_tasks(ctx)
        _check_name_header(ctx, task_id)

    async def detailed(self, status: TaskStatus) -> dict[str, Any]:
        """Return a `DetailedTask` with its result, error or questions."""
        shown, task = wire.task_shown(status), status.task
        if task.finished:
            self._access.open_calls.close(task.task_id)
        if shown["status"] == "completed":
            outcome = await self._access.outcome(task)
            shown["result"] = {**outcome, "resultType": "complete"}
        elif shown["status"] == "failed":
            shown["error"] = task_error(task)
        elif shown["status"] == "input_required":
            shown["inputRequests"] = input_requests(status.questions)
        return shown

    # -- subscriptions

    async def listen(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Serve the `taskIds` of a `subscriptions/listen`, on the server's own stream."""
        wanted = ((ctx.params or {}).get("notifications") or {}).get(wire.TASK_IDS)
        if wanted is None or not is_modern(ctx):
            return await call_next(ctx)
        _require_tasks(ctx)
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
        """Return the ids that are the caller's own tasks. Raises MCPError for an invalid list."""
        if not isinstance(wanted, list) or not all(isinstance(task_id, str) for task_id in wanted):
            raise MCPError(INVALID_PARAMS, f"notifications.{wire.TASK_IDS} must be a list of task ids")
        if len(wanted) > wire.MOST_TASK_IDS:
            raise MCPError(
                INVALID_PARAMS, f"notifications.{wire.TASK_IDS} may name at most {wire.MOST_TASK_IDS} tasks"
            )
        honoured = []
        for task_id in dict.fromkeys(wanted):
            try:
                honoured.append((await self._access.head(task_id)).task_id)
            except TaskNotFound:
                continue
        return honoured

    async def _push(self, ctx: RequestContext, task_id: str, owner: str) -> None:
        """Send the task now and after each change."""
        status: TaskStatus | None = None
        try:
            with self._access.open_calls.held(task_id, ctx):
                async for status in follow(self._access.service, task_id, owner):
                    await self._send(ctx, await self.detailed(status))
        except TaskNotFound:
            if status is not None:
                await self._send(ctx, await self.detailed(as_deleted(status)))
        except KeyError:
            return  # it expired

    async def _send(self, ctx: RequestContext, shown: dict[str, Any]) -> None:
        meta = {**shown.get("_meta", {}), SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        await ctx.session.send_notification(notification(wire.NEWS, {**shown, "_meta": meta}), ctx.request_id)


def _has_stopped(task: Task) -> bool:
    return task.state not in _UNDER_WAY


class _ListenSession:
    """Adds the task ids to the acknowledgement of a listen request."""

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
                {**asked, wire.TASK_IDS: self._task_ids}
            )
            await self._session.send_notification(message, related_request_id)
            self.acknowledged.set()
        else:
            await self._session.send_notification(message, related_request_id)


def _require_tasks(ctx: RequestContext) -> None:
    """Raise MCPError unless the client declared the extension on this request."""
    if not declares(ctx, _TASKS):
        raise missing_capability({"extensions": {wire.EXTENSION: {}}})


def _check_name_header(ctx: RequestContext, task_id: str) -> None:
    """Raise MCPError if `Mcp-Name`, which routers use, names another task.

    A missing header is accepted: a widespread client sends none (docs/explanation/deviations.md).
    """
    headers = getattr(ctx.request, "headers", None)
    named = None if headers is None else headers.get(MCP_NAME_HEADER)
    if named is not None and decode_header_value(named) != task_id:
        raise MCPError(HEADER_MISMATCH, "The Mcp-Name header does not match params.taskId")
