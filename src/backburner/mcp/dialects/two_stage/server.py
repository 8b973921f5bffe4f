"""The server half: calls of clients that know no tasks are held, or answered with a handle.

This is stage 1 of the two-stage return; `announcing` has the others, and `tools/poll_result` is for those
who would rather ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....errors import BackburnerError, TaskNotFound
from ....mcp_result import MCPResult
from ....service import TaskStatus
from ....times import span
from ....tools import ToolSpec
from ...access import TaskAccess
from ...input_rounds import InputRounds
from ...open_calls import joined_words, say_joined
from ...outcomes import result_meta
from ...pages import TASK_OF_CARD, on_a_card
from ...progress_tokens import ProgressTokens
from ...request import RequestContext, comes_again
from ...server_dialect import Method, ServerDialect, SlowCall
from ..task_tools.wire import ANSWER_TASK, WAIT_FOR_TASK, estimated
from .announcing import Announcements, asks_for_handle, learn_two_stage, progress_update, takes_handle
from .holding import HeldCalls, always_held
from .wire import POLL, STATUS, PollParams, described, handle, named, queued_words, too_early


class TwoStage(ServerDialect):
    """Takes every call that no other dialect takes, and answers by the tool's `answer` mode."""

    def __init__(self, access: TaskAccess, rounds: InputRounds, tokens: ProgressTokens) -> None:
        self._access = access
        self._rounds = rounds
        self._held = HeldCalls(access, rounds, tokens)
        self._announcements = Announcements(access, tokens)

    def methods(self) -> Mapping[str, Method]:
        return {POLL: Method(PollParams, self.poll)}

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        if always_held(spec, self._access.settings):
            return tool
        return described(tool)

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        return True

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        if comes_again(call.ctx):
            status = await self._rounds.resumed(call.ctx, call.spec)
        else:
            status = await self._access.submit(call.ctx, call.spec, answers=call.answers)
        typed = call.spec.output_schema is not None
        await self._access.patience.refresh()
        patience_s = self._patience_s(call, status)
        if patience_s != 0 or status.task.finished:
            result = await self._held.hold(call, status, patience_s)
            if result is not None:
                return say_joined(result, status, typed=typed)
            now = await self._access.service.aio.status(status.task_id, owner=status.task.owner)
            status = replace(now, joined=status.joined)
            if status.task.finished:  # at the very moment at which patience ended
                self._access.open_calls.close(status.task_id)
                return say_joined(await self._held.result(status), status, typed=typed)
        if not asks_for_handle(call.ctx):  # who asks for it looks after its job
            self._access.open_calls.give_up(status.task_id, "handle")
        return say_joined(self._hand_out(call, status), status, typed=True)

    def _patience_s(self, call: SlowCall, status: TaskStatus) -> float | None:
        """How long to hold the call; None means to its end. The tool's author has the first word."""
        settings = self._access.settings
        if always_held(call.spec, settings):
            return None
        if not (self._takes_handle(call) or self._access.patience.gives_up(call.ctx)):
            return None
        at_once = call.spec.answer_in(settings) == "handle" or asks_for_handle(call.ctx)
        if at_once or self._on_a_card(call):
            return 0
        patience_s = self._access.patience.hold_s(call.ctx)
        if patience_s is None:
            return None
        estimate_s = status.eta_s if status.joined else status.task.estimate_s
        too_long = estimate_s is not None and estimate_s > patience_s
        # Its client's clock began when it called.
        return 0 if too_long else max(0, patience_s - call.waited_s)

    def _takes_handle(self, call: SlowCall) -> bool:
        """Whether the client can take a handle in place of the result (docs/decisions/0020).

        A tool with an output schema promises a result that fits it, and most clients hold it to that.
        """
        return _is_handle_a_result(call.spec) or takes_handle(call.ctx) or self._on_a_card(call)

    def _on_a_card(self, call: SlowCall) -> bool:
        return on_a_card(call.ctx, call.spec, self._access.settings)

    def _hand_out(self, call: SlowCall, status: TaskStatus) -> dict[str, Any]:
        """The task's id, how long it will take, and in two sentences what to do next."""
        self._announcements.announce(call, status)
        task, on_a_card = status.task, self._on_a_card(call)
        text = self._words(call, status)
        how = {**estimated(status.estimate), "poll_endpoint": POLL}
        words = queued_words(STATUS[task.state], status.estimate.seconds)
        typed = not _is_handle_a_result(call.spec) and not on_a_card  # then it is not listed as one
        handed_out = handle(task.task_id, STATUS[task.state], words, text, typed=typed, **how)
        if not self._takes_handle(call):
            handed_out = too_early(handed_out)
        meta = {"progressToken": call.token.shown_for(task)}
        if on_a_card:
            meta[TASK_OF_CARD] = task.task_id
        return {**handed_out, "_meta": {**handed_out.get("_meta", {}), **meta}}

    def _words(self, call: SlowCall, status: TaskStatus) -> str:
        """What the model reads of a handle."""
        mcp, task = self._access.settings.mcp, status.task
        left = "" if status.eta_s is None else f", with about {span(status.eta_s)} left"
        text = f"{task.tool_name} goes on in the background as task {task.task_id}{left}."
        if status.joined:
            text += f" {joined_words(task.task_id)}"
        wait = f"{mcp.task_tools_prefix}{WAIT_FOR_TASK} with this task_id"
        if self._on_a_card(call):
            text += " Its user sees it on a card here, and can answer its questions and cancel it there."
            if mcp.card_tells != "nothing":
                text += " When it is over, the card tells you of it and its result: there is nothing to call."
                return f"{text} Only to have it in this turn, call {wait}." if mcp.task_tools else text
        elif call.spec.asks == "anyone" and status.questions:
            asked = "; ".join(str(one.params.get("message") or one.method) for one in status.questions)
            text += f" It waits for an answer to: {asked}"
            if mcp.task_tools:
                text += f" Call {mcp.task_tools_prefix}{ANSWER_TASK} to give it."
        return f"{text} For its result, call {wait}." if mcp.task_tools else text

    async def heard(self, ctx: RequestContext) -> None:
        if ctx.method == "notifications/cancelled":
            await self._held.cancelled(ctx)

    async def poll(self, ctx: RequestContext, params: PollParams) -> dict[str, Any]:
        """`tools/poll_result`: how a job is, and its result when it is over. It may be asked for again."""
        learn_two_stage(ctx)
        self._access.open_calls.heard_of(params.job_id)
        try:
            await self._access.ready()
            status = await self._access.status(params.job_id)
        except TaskNotFound:
            return MCPResult.error_result(f"Job not found: {params.job_id[:100]}").to_dict()
        except BackburnerError as error:
            return MCPResult.error_result(str(error)).to_dict()
        data: dict[str, Any] = {**named(status.task_id), "status": STATUS[status.task.state]}
        if status.task.finished:
            data["result"] = (await self._announcements.result(status)).to_dict()
            return {**MCPResult(data=data).to_dict(), "_meta": result_meta(status.task)}
        update = progress_update(status)
        data |= {"progress": update.part or 0.0, "message": update.message, **estimated(status.estimate)}
        return MCPResult(data=data).to_dict()


def _is_handle_a_result(spec: ToolSpec) -> bool:
    """Whether a handle fits the output schema, if there is one, and the tool's author wants handles."""
    return spec.output_schema is None or (spec.answer == "handle" and spec.allows_handle)
