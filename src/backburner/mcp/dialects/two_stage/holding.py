"""Holding a call until its result is there: it says how far it is, and asks the task's questions."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from mcp.shared.exceptions import MCPError, NoBackChannelError

from ....config import Settings
from ....figures import FIGURES
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
from ...patience import asking
from ...progress_tokens import ProgressTokens, ProgressUpdate
from ...questions import declined, give, put
from ...request import RequestContext, has_left
from ...sdk import stream_of
from ...server_dialect import SlowCall
from ...showing import Client
from ...timeouts import LATE_S, may_be_timer, timer_ran_out
from .announcing import progress_update

#: So long a word of a call that was cut off is waited for before the client is taken to be gone.
_SETTLE_S = 0.1
_MOST_CHARS = 200


@dataclass(eq=False)
class _Held:
    """A call that is being held, or was a moment ago."""

    status: TaskStatus
    spec: ToolSpec
    client: Client
    progress: _Progress
    call: SlowCall

    @property
    def task_id(self) -> str:
        return self.status.task_id

    @property
    def waited_s(self) -> float:
        return self.call.waited_s

    @property
    def silent_s(self) -> float:
        return self.progress.silent_s


class HeldCalls:
    """The calls that are being held, by connection and request."""

    def __init__(self, access: TaskAccess, rounds: InputRounds, tokens: ProgressTokens) -> None:
        self._access = access
        self._rounds = rounds
        self._tokens = tokens
        self._held: dict[tuple[int, Any], _Held] = {}

    async def hold(
        self, call: SlowCall, status: TaskStatus, patience_s: float | None
    ) -> dict[str, Any] | None:
        """The result of the call, or what it asks; None when patience ended first (None: it never does).

        None also when it asks anyone and its client cannot be asked: the client has better know of the task.
        """
        ctx, calls, task_id = call.ctx, self._access.open_calls, status.task_id
        key = (stream_of(ctx.session), ctx.request_id)
        progress = _Progress(call, self._tokens)
        held = self._held[key] = _Held(status, call.spec, asking(ctx), progress, call)
        heartbeat = asyncio.ensure_future(progress.beat(self._access.patience.limits_of(ctx).heartbeat_s))
        keep_s = 0.0
        try:
            with calls.held(task_id, ctx), FIGURES.holding():
                async with asyncio.timeout(None if status.task.finished else patience_s):
                    result = await self._follow(call, status, progress)
            if result is not None and result.get("resultType") != "input_required":
                await self._delivered(ctx, held)
            return result
        except TimeoutError:
            return None
        except MCPError:
            await self._delivered(ctx, held)
            raise
        except asyncio.CancelledError:
            keep_s = LATE_S  # the client cancelled the call, or went away: `cancelled` will tell
            calls.left(task_id)
            asyncio.get_running_loop().call_later(_SETTLE_S, self._settle, key, ctx, held.waited_s)
            raise
        finally:
            heartbeat.cancel()
            asyncio.get_running_loop().call_later(keep_s, self._held.pop, key, None)

    async def cancelled(self, ctx: RequestContext) -> None:
        """The client cancelled one of its requests: if that was a held call, its task is cancelled too.

        Not if only its timer ran out, nor if the tool or the settings would have it go on, nor while others
        wait for the task.
        """
        request_id = (ctx.params or {}).get("requestId")
        if not isinstance(request_id, str | int):
            return
        held = self._held.pop((stream_of(ctx.session), request_id), None)
        if held is None:
            return
        calls, task_id, said = self._access.open_calls, held.task_id, (ctx.params or {}).get("reason")
        told: dict[str, Any] = {"reason": said[:_MOST_CHARS]} if isinstance(said, str) else {}
        told |= {"client": held.client.name, "waited_s": round(held.waited_s, 3)}
        if timer_ran_out(said):
            calls.give_up(task_id, "timed_out", **told)
            await self._access.patience.learn(held.client, held.waited_s, held.silent_s)
        elif (held.spec.on_cancel or self._access.settings.mcp.on_cancel) == "detach" or calls.is_held(
            task_id
        ):
            calls.give_up(task_id, "stopped", **told)
        else:
            reason, owner = "The client cancelled the call", held.status.task.owner
            await self._access.service.aio.cancel(task_id, owner=owner, reason=reason)
            calls.close(task_id)

    def _settle(self, key: tuple[int, Any], ctx: RequestContext, waited_s: float) -> None:
        """No word came of a call that was cut off: its client is gone, or a proxy between has cut it."""
        held = self._held.get(key)
        if held is None:
            return
        client, calls = held.client, self._access.open_calls
        calls.give_up(held.task_id, "gone", client=client.name, waited_s=round(waited_s, 3))
        if may_be_timer(ctx, waited_s):
            self._access.patience.learn_soon(client, waited_s, held.silent_s)

    async def _delivered(self, ctx: RequestContext, held: _Held) -> None:
        """The answer goes out now; nobody gets it where the connection is closed."""
        if not await has_left(ctx):
            self._access.open_calls.close(held.task_id)
            await self._access.patience.delivered(held.client, held.waited_s)
            return
        told = {"client": held.client.name, "waited_s": round(held.waited_s, 3)}
        self._access.open_calls.give_up(held.task_id, "gone", **told)
        await self._access.patience.learn(held.client, held.waited_s, held.silent_s)

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
                answered = await self._ask(ctx, status, spec.asks)
                if not (answered or always_held(spec, self._access.settings)):
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


def always_held(spec: ToolSpec, settings: Settings) -> bool:
    """Whether a call of the tool is never answered by a handle."""
    return spec.answer_in(settings) == "hold" or spec.task == "never"


class _Progress:
    """`notifications/progress` for one held call, if its client gave a token for it."""

    def __init__(self, call: SlowCall, tokens: ProgressTokens) -> None:
        self._ctx = call.ctx
        self._tokens = tokens
        self._token = call.token
        self._latest = ProgressUpdate.of(None, "Working")
        self._spoke = call.came_at

    @property
    def silent_s(self) -> float:
        """How long its client has heard nothing."""
        return time.monotonic() - self._spoke

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
            self._spoke = time.monotonic()
