"""Calls of clients that know no tasks: held until the result is there, or answered with a handle.

This is stage 1 of the two-stage return. A held call says how far it is by `notifications/progress`
and asks the task's questions itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types
from itsdangerous import BadData, URLSafeSerializer
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types.jsonrpc import INVALID_PARAMS

from ....config import Settings
from ....errors import InvalidAnswer
from ....lifecycle import State
from ....service import TaskStatus
from ....times import span
from ....tools import ToolSpec
from ...access import TaskAccess
from ...auth import owner_of_request
from ...following import follow
from ...mapping import TWO_STAGE, input_requests, present, protocol_error, tool_raised
from ...outbox import notification
from ...outcomes import error_result, text_block
from ...patience import patience_s
from ...progress_tokens import CallToken, ProgressTokens, ProgressUpdate
from ...questions import put, refusal
from ...request import RequestContext, connection_of, declares, is_modern, missing_capability, request_meta
from .announcing import POLL, Stages, progress_update

_ELICITATION = types.ClientCapabilities(elicitation=types.ElicitationCapability())
#: So long after a call was cancelled its `notifications/cancelled` is still expected.
_LATE_S = 5.0
#: A held call speaks up this often even when nothing happens: some clients' clocks restart on progress.
_HEARTBEAT_S = 10.0


class PlainCalls:
    """Answers `tools/call` for a slow tool by its answer mode: `hold`, `handle` or `auto`."""

    def __init__(self, access: TaskAccess, tokens: ProgressTokens, stages: Stages) -> None:
        self._access = access
        self._tokens = tokens
        self._stages = stages
        self._held: dict[tuple[int, Any], tuple[str, str]] = {}

    async def answer(
        self, ctx: RequestContext, spec: ToolSpec, answers: dict[str, Any], token: CallToken
    ) -> dict[str, Any]:
        status = await self.resumed(ctx, spec)
        if status is None:
            status = await self._access.submit(ctx, spec, answers=answers)
        patience_s = self._patience_s(ctx, spec, status)
        if patience_s == 0:
            return self._handle(ctx, status, token)
        return await self._hold(ctx, status, patience_s, token)

    def _patience_s(self, ctx: RequestContext, spec: ToolSpec, status: TaskStatus) -> float | None:
        """How long to hold the call; None means to its end."""
        if spec.answer == "hold" or spec.task == "never":
            return None
        patience_s, estimate_s = client_patience_s(ctx, self._access.settings), status.task.estimate_s
        too_long = patience_s is not None and estimate_s is not None and estimate_s > patience_s
        return 0 if spec.answer == "handle" or too_long else patience_s

    def _handle(self, ctx: RequestContext, status: TaskStatus, token: CallToken) -> dict[str, Any]:
        self._stages.announce(ctx, status, token.shown)
        settings = self._access.settings
        return handle(status, settings.task_tools_prefix if settings.task_tools == "on" else None)

    # -- holding

    async def _hold(
        self, ctx: RequestContext, status: TaskStatus, patience_s: float | None, token: CallToken
    ) -> dict[str, Any]:
        key = (id(connection_of(ctx)), ctx.request_id)
        self._held[key] = (status.task_id, status.task.owner)
        progress = _Progress(ctx, self._tokens, token)
        known_s = client_patience_s(ctx, self._access.settings)
        heartbeat = asyncio.ensure_future(progress.beat(min(_HEARTBEAT_S, (known_s or _HEARTBEAT_S) / 3)))
        keep_s = 0.0
        try:
            async with asyncio.timeout(patience_s):
                return await self._follow(ctx, status, progress)
        except TimeoutError:
            status = await self._access.service.aio.status(status.task_id, owner=status.task.owner)
            return self._handle(ctx, status, token)
        except asyncio.CancelledError:
            keep_s = _LATE_S  # the client cancelled the call, or went away: `cancelled` will tell
            raise
        finally:
            heartbeat.cancel()
            asyncio.get_running_loop().call_later(keep_s, self._held.pop, key, None)

    async def cancelled(self, ctx: RequestContext) -> None:
        """The client cancelled one of its requests: if that was a held call, its task is cancelled too."""
        request_id = (ctx.params or {}).get("requestId")
        if not isinstance(request_id, str | int):
            return
        held = self._held.pop((id(connection_of(ctx)), request_id), None)
        if held is not None:
            task_id, owner = held
            await self._access.service.aio.cancel(
                task_id, owner=owner, reason="The client cancelled the call"
            )

    async def _follow(self, ctx: RequestContext, held: TaskStatus, progress: _Progress) -> dict[str, Any]:
        status = held
        async for status in follow(self._access.service, held.task_id, held.task.owner):
            await progress.say(status)
            if status.task.state is State.INPUT_REQUIRED and status.questions:
                if is_modern(ctx) and declares(ctx, _ELICITATION):
                    return self._ask_by_result(status)
                await self._ask(ctx, status)
        return await self._result(present(status))

    async def _result(self, status: TaskStatus) -> dict[str, Any]:
        task = status.task
        if task.state is State.SUCCEEDED or tool_raised(task):
            return await self._access.outcome(task.task_id, task.owner)
        if task.error is not None and task.error.type == "protocol_error":
            error = protocol_error(task)
            raise MCPError(error["code"], error["message"], error.get("data"))
        words = task.error.message if task.error else f"The task is {task.state}."
        return error_result(words)

    # -- questions in a held call

    async def _ask(self, ctx: RequestContext, status: TaskStatus) -> None:
        """Ask by requests on the call's own stream; who cannot be asked is taken to refuse."""
        answers: dict[str, Any] = {}
        for question in status.questions:
            try:
                answers[question.key] = await put(question, ctx.session, ctx.request_id, None)
            except NoBackChannelError as error:
                answers[question.key] = refusal(question.method, str(error))
        service, owner = self._access.service, status.task.owner
        try:
            await service.aio.answer_input(status.task_id, answers, owner=owner)
        except InvalidAnswer as error:
            refused = {q.key: refusal(q.method, str(error)) for q in status.questions}
            await service.aio.answer_input(status.task_id, refused, owner=owner)

    def _ask_by_result(self, status: TaskStatus) -> dict[str, Any]:
        """An `InputRequiredResult`; its state leads the retry back to the same task."""
        state = self._signer().dumps([status.task_id, status.task.tool_name])
        requests = input_requests(status)
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    async def resumed(self, ctx: RequestContext, spec: ToolSpec) -> TaskStatus | None:
        """The task of a call that is being retried with answers, which it gets."""
        params = ctx.params or {}
        state, given = params.get("requestState"), params.get("inputResponses")
        if not is_modern(ctx) or state is None:
            return None
        try:
            task_id, tool_name = self._signer().loads(state)
        except (BadData, TypeError, ValueError):
            raise MCPError(INVALID_PARAMS, "Invalid or expired requestState") from None
        if tool_name != spec.name:
            raise MCPError(INVALID_PARAMS, "Invalid or expired requestState")
        status = await self._access.status(task_id)
        if isinstance(given, Mapping) and given:
            await self._access.service.aio.answer_input(task_id, given, owner=owner_of_request())
            status = await self._access.status(task_id)
        return status

    def _signer(self) -> Any:
        return URLSafeSerializer(self._access.app.store.secret(), salt="backburner.held-call")


def require_elicitation(ctx: RequestContext) -> None:
    """Raise MCPError when a tool must ask before it starts and the client cannot be asked."""
    if not declares(ctx, _ELICITATION):
        raise missing_capability({"elicitation": {}})


class _Progress:
    """`notifications/progress` for one held call, if its client gave a token for it."""

    def __init__(self, ctx: RequestContext, tokens: ProgressTokens, token: CallToken) -> None:
        self._ctx = ctx
        self._tokens = tokens
        self._token = token
        self._asked = "progressToken" in request_meta(ctx)
        self._sent = -1.0
        self._latest = ProgressUpdate(0.0, message="Working")

    async def say(self, status: TaskStatus) -> None:
        progress = status.task.progress
        if progress is not None and progress.percent is not None:
            self._latest = replace(progress_update(status), percentage=progress.percent)
            await self._send(progress.percent)

    async def beat(self, interval_s: float) -> None:
        """Speak up now and then also when nothing happens."""
        while True:
            await asyncio.sleep(interval_s)
            await self._send(self._sent + 0.001)

    async def _send(self, percent: float) -> None:
        """Progress must grow with each notification, whatever the tool says."""
        self._tokens.touch(self._token.key, self._latest)
        if not self._asked or percent <= self._sent:
            return
        self._sent = max(percent, 0.0)
        params = {**self._latest.to_params(self._token.shown), "progress": self._sent}
        message = notification("notifications/progress", params)
        await self._ctx.session.send_notification(message, self._ctx.request_id)


def client_patience_s(ctx: RequestContext, settings: Settings) -> float | None:
    """How long this client waits for an answer; None: for as long as it takes."""
    client = ctx.session.client_params.client_info if ctx.session.client_params else None
    return patience_s(client.name if client else "", client.version if client else "", settings)


# -- the handle ------------------------------------------------------------------------------------

HANDLE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "success": {"type": "boolean"},
        "data": {
            "type": "object",
            "properties": {
                "job_id": {"type": "string"},
                "estimated_runtime_seconds": {"type": ["number", "null"]},
                "status": {"type": "string", "enum": sorted(set(TWO_STAGE.values()))},
            },
            "required": ["job_id", "status"],
        },
        "messages": {"type": "array"},
    },
    "required": ["success", "data", "messages"],
}


def handle(status: TaskStatus, prefix: str | None = "") -> dict[str, Any]:
    """Stage 1: the task's id, how long it will take, and in two sentences what to do next.

    `prefix` is that of the task tools, and None when the client does not have them.
    """
    left_s = status.eta_s if status.eta_s is not None else status.task.estimate_s
    takes = "" if left_s is None else f", which should take about {span(left_s)}"
    text = f"{status.task.tool_name} goes on in the background as task {status.task_id}{takes}."
    if prefix is not None:
        text += (
            f" When you want its result, call {prefix}wait_for_task with this task_id,"
            " and again for as long as `finished` is false."
        )
    data = {
        "job_id": status.task_id,
        "estimated_runtime_seconds": left_s,
        "status": TWO_STAGE[status.task.state],
        "poll_endpoint": POLL,
    }
    body = {"success": True, "data": data, "messages": [{"type": "info", "text": text}]}
    return {"content": [text_block(text)], "structuredContent": body, "isError": False, **body}
