"""Holding a call until its result is there: it says how far it is, and asks the task's questions."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.shared.exceptions import NoBackChannelError

from ....lifecycle import State
from ....service import TaskStatus
from ....tools import AsksMode, ToolSpec
from ...access import TaskAccess, present
from ...following import follow
from ...input_rounds import InputRounds, can_be_asked
from ...jsonrpc_errors import task_failure
from ...log_messages import LogMessages
from ...outbox import notification
from ...outcomes import error_result, result_meta, tool_raised
from ...patience import client_patience_s
from ...progress_tokens import CallToken, ProgressTokens, ProgressUpdate
from ...questions import declined, give, put
from ...request import RequestContext
from ...sdk import connection_of
from ...server_dialect import SlowCall
from .announcing import progress_update

#: So long after a call was cancelled its `notifications/cancelled` is still expected.
_LATE_S = 5.0
#: A held call speaks up this often even when nothing happens: some clients' clocks restart on progress.
_HEARTBEAT_S = 10.0


class HeldCalls:
    """The calls that are being held, by connection and request."""

    def __init__(self, access: TaskAccess, rounds: InputRounds, tokens: ProgressTokens) -> None:
        self._access = access
        self._rounds = rounds
        self._tokens = tokens
        self._held: dict[tuple[int, Any], tuple[str, str]] = {}

    async def hold(
        self, call: SlowCall, status: TaskStatus, patience_s: float | None
    ) -> dict[str, Any] | None:
        """The result of the call, or what it asks; None when patience ended first (None: it never does).

        None also when it asks anyone and its client cannot be asked: the client has better know of the task.
        """
        ctx = call.ctx
        key = (id(connection_of(ctx.session)), ctx.request_id)
        self._held[key] = (status.task_id, status.task.owner)
        progress = _Progress(ctx, self._tokens, call.token)
        known_s = client_patience_s(ctx, self._access.settings)
        heartbeat = asyncio.ensure_future(progress.beat(min(_HEARTBEAT_S, (known_s or _HEARTBEAT_S) / 3)))
        keep_s = 0.0
        try:
            async with asyncio.timeout(patience_s):
                return await self._follow(call, status, progress)
        except TimeoutError:
            return None
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
        held = self._held.pop((id(connection_of(ctx.session)), request_id), None)
        if held is not None:
            task_id, owner = held
            reason = "The client cancelled the call"
            await self._access.service.aio.cancel(task_id, owner=owner, reason=reason)

    async def _follow(self, call: SlowCall, held: TaskStatus, progress: _Progress) -> dict[str, Any] | None:
        status, ctx, spec = held, call.ctx, call.spec
        messages = LogMessages(ctx, self._access.service, held.task)
        async for status in follow(
            self._access.service, held.task_id, held.task.owner, with_logs=messages.wanted
        ):
            await messages.say()
            await progress.say(status)
            if status.task.state is State.INPUT_REQUIRED and status.questions:
                if can_be_asked(ctx):
                    return self._rounds.ask(status)
                if not await self._ask(ctx, status, spec.asks) and not always_held(spec):
                    return None
        return await self.result(present(status))

    async def result(self, status: TaskStatus) -> dict[str, Any]:
        """The answer to a call whose task is finished. Raises MCPError if its tool did."""
        task = status.task
        if task.state is State.SUCCEEDED or tool_raised(task):
            return await self._access.outcome(task)
        if task.error is not None and task.error.type == "protocol_error":
            raise task_failure(task)
        failed = error_result(task.error.message if task.error else f"The task is {task.state}.")
        return {**failed, "_meta": result_meta(task)}

    async def _ask(self, ctx: RequestContext, status: TaskStatus, asks: AsksMode) -> bool:
        """Ask by requests on the call's own stream; who cannot be asked is taken to refuse.

        False, and nothing is answered, if that is so and the tool asks anyone.
        """
        answers: dict[str, Any] = {}
        for question in status.questions:
            try:
                answers[question.key] = await put(question, ctx.session, ctx.request_id, asks=asks)
            except NoBackChannelError as error:
                if asks == "anyone":
                    return False
                answers[question.key] = declined(question.method, str(error))
        await give(self._access.service, status, answers)
        return True


def always_held(spec: ToolSpec) -> bool:
    """Whether a call of the tool is never answered by a handle."""
    return spec.answer == "hold" or spec.task == "never"


class _Progress:
    """`notifications/progress` for one held call, if its client gave a token for it."""

    def __init__(self, ctx: RequestContext, tokens: ProgressTokens, token: CallToken) -> None:
        self._ctx = ctx
        self._tokens = tokens
        self._token = token
        self._latest = ProgressUpdate.of(None, "Working")

    async def say(self, status: TaskStatus) -> None:
        task = status.task
        if task.progress is not None:
            # In the words of an attached tool alone: so its client heard it before.
            attached = task.result_kind == "call_tool_result"
            self._latest = ProgressUpdate.of(task.progress) if attached else progress_update(status)
            await self._send()

    async def beat(self, interval_s: float) -> None:
        """Speak up now and then also when nothing happens."""
        while True:
            await asyncio.sleep(interval_s)
            await self._send(anyway=True)

    async def _send(self, *, anyway: bool = False) -> None:
        self._tokens.touch(self._token.key, self._latest)
        if self._token.given is None:
            return
        params = self._token.scale.params(self._token.given, self._latest, anyway=anyway)
        if params is not None:
            message = notification("notifications/progress", params)
            await self._ctx.session.send_notification(message, self._ctx.request_id)
