"""The server half: calls of clients that know no tasks are held, or answered with a handle.

This is stage 1 of the two-stage return; `announcing` has the others, and `tools/poll_result` is for those
who would rather ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import BackburnerError, TaskNotFound
from ....mcp_result import MCPResult
from ....service import TaskStatus
from ....times import span
from ....tools import ToolSpec
from ...access import TaskAccess
from ...input_rounds import InputRounds
from ...patience import client_patience_s
from ...progress_tokens import CallToken, ProgressTokens
from ...request import RequestContext, comes_again
from ...server_dialect import Method, ServerDialect, SlowCall
from ..task_tools.wire import WAIT_FOR_TASK
from .announcing import Announcements, learn_two_stage, progress_update
from .holding import HeldCalls
from .wire import POLL, STATUS, PollParams, described, estimated, handle, named, or_handle


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
        if spec.answer == "hold" or spec.task == "never":
            return tool
        tool = described(tool)
        if tool.get("outputSchema") and spec.task == "optional":
            tool["outputSchema"] = or_handle(tool["outputSchema"])
        return tool

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        return True

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        if comes_again(call.ctx):
            status = await self._rounds.resumed(call.ctx, call.spec)
        else:
            status = await self._access.submit(call.ctx, call.spec, answers=call.answers)
        patience_s = self._patience_s(call, status)
        if patience_s != 0:
            result = await self._held.hold(call, status, patience_s)
            if result is not None:
                return result
            status = await self._access.service.aio.status(status.task_id, owner=status.task.owner)
        return self._hand_out(call.ctx, status, call.token)

    def _patience_s(self, call: SlowCall, status: TaskStatus) -> float | None:
        """How long to hold the call; None means to its end."""
        if call.spec.answer == "hold" or call.spec.task == "never":
            return None
        patience_s, estimate_s = client_patience_s(call.ctx, self._access.settings), status.task.estimate_s
        too_long = patience_s is not None and estimate_s is not None and estimate_s > patience_s
        return 0 if call.spec.answer == "handle" or too_long else patience_s

    def _hand_out(self, ctx: RequestContext, status: TaskStatus, token: CallToken) -> dict[str, Any]:
        """The task's id, how long it will take, and in two sentences what to do next."""
        self._announcements.announce(ctx, status, token.shown)
        settings, task = self._access.settings, status.task
        left_s = status.eta_s if status.eta_s is not None else task.estimate_s
        takes = "" if left_s is None else f", which should take about {span(left_s)}"
        text = f"{task.tool_name} goes on in the background as task {task.task_id}{takes}."
        if settings.mcp.task_tools:
            text += (
                f" When you want its result, call {settings.mcp.task_tools_prefix}{WAIT_FOR_TASK} with this"
                " task_id, and again for as long as `finished` is false."
            )
        how = {**estimated(left_s), "poll_endpoint": POLL}
        return handle(task.task_id, STATUS[task.state], text, **how)

    async def heard(self, ctx: RequestContext) -> None:
        if ctx.method == "notifications/cancelled":
            await self._held.cancelled(ctx)

    async def poll(self, ctx: RequestContext, params: PollParams) -> dict[str, Any]:
        """`tools/poll_result`: how a job is, and its result when it is over. It may be asked for again."""
        learn_two_stage(ctx)
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
        else:
            update = progress_update(status)
            data |= {"progress": (update.percentage or 0.0) / 100, "message": update.message}
        return MCPResult(data=data).to_dict()
