"""Stages 2 and 3: clients that hold a job's handle are told how it goes on, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ....errors import NoClient, ProgressTimeout, TaskNotFound, TokenNotFound
from ....lifecycle import State
from ....mcp_result import MCPResult
from ....service import TaskStatus
from ....task import Task
from ...access import TaskAccess, present
from ...following import follow
from ...jsonrpc_errors import raised_error
from ...outbox import Outbox, connection_state, outbox_of, while_connected
from ...outcomes import error_for_clients, own_word, result_meta, tool_raised
from ...progress_tokens import CallToken, ProgressTokens, ProgressUpdate, Token
from ...questions import QuestionsOut
from ...request import RequestContext, is_modern, request_meta
from ...server_dialect import SlowCall
from ...status_words import progress_message
from .wire import ASYNC, CAPABILITY, RESULT_NEWS, STARTING, about_job

_KNOWS_TWO_STAGE = "backburner.two-stage"


class Announcements:
    """Tells clients that hold a job's handle how it goes on."""

    def __init__(self, access: TaskAccess, tokens: ProgressTokens) -> None:
        self._access = access
        self._tokens = tokens
        self._followers: set[asyncio.Task[None]] = set()

    def announce(self, call: SlowCall, status: TaskStatus) -> None:
        """Tell the client of the job from now on, and ask it what the job asks; returns at once.

        Clients hear of the jobs of every tool whose author chose handles, and of others if they can take
        that. Nothing waits for the client: news goes through the outbox of its connection.
        """
        self._access.waking.when_over(status.task)
        ctx, settings = call.ctx, self._access.settings
        everybody = call.spec.answer_in(settings) == "handle" or settings.mcp.announce_jobs == "all"
        if not (everybody or takes_results(ctx)):
            return
        if is_modern(ctx) and ctx.request is not None:
            return  # over HTTP without sessions there is no stream to send on
        # It begins when this request waits, so after the answer is on its way.
        follower = asyncio.create_task(self._tell(ctx, status, call.token))
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        while_connected(ctx, follower)

    async def _tell(self, ctx: RequestContext, handed_out: TaskStatus, shown: CallToken) -> None:
        outbox = outbox_of(ctx)
        job, token = _Job(handed_out.task_id, outbox, shown), self._tokens.generate_token()
        asking = QuestionsOut(self._access.service, ctx.session)
        status = handed_out
        try:
            self._say(job, handed_out, token)
            async for status in follow(self._access.service, job.job_id, handed_out.task.owner):
                if outbox.closed:
                    return
                asking.see(status)
                if not status.task.finished:
                    self._say(job, status, token)
            outbox.put(
                f"result:{job.job_id}",
                RESULT_NEWS,
                {
                    **about_job(job.job_id),
                    "result": (await self.result(status)).to_dict(),
                    "_meta": {**about_job(job.job_id), **result_meta(status.task)},
                },
            )
        except TaskNotFound:
            return  # it expired, or was deleted: there is nothing to tell any more
        finally:
            asking.take_back()
            self._tokens.cleanup_completed(token)

    def _say(self, job: _Job, status: TaskStatus, token: Token) -> None:
        update = progress_update(status)
        try:
            self._tokens.send_progress(token, update)
        except (TokenNotFound, ProgressTimeout, NoClient):
            shown, scale = job.token.shown_for(status.task), job.token.scale
            self._tokens.track_tool_call(token, status.task.tool_name, job, shown=shown, scale=scale)
            self._tokens.send_progress(token, update)

    async def result(self, status: TaskStatus) -> MCPResult:
        """The result of a job that is over. Raises TaskNotFound once it has expired."""
        task = present(status).task
        self._access.open_calls.close(task.task_id)
        if task.state is not State.SUCCEEDED:
            return failure(task)
        outcome = await self._access.outcome(task)
        tools, name = self._access.app.tools, task.tool_name
        return success((tools.get(name).title if name in tools else "") or name, outcome)


def success(title: str, outcome: Mapping[str, Any]) -> MCPResult:
    """What a tool returned. A tool that returned an MCPResult is taken at its word."""
    data = outcome.get("structuredContent")
    if not isinstance(data, dict):
        data = {"content": outcome.get("content", [])}
    said = MCPResult.in_tool_result(outcome)
    return said or MCPResult(data=data).add_success(f"{title} completed successfully")


def failure(task: Task) -> MCPResult:
    error, said = error_for_clients(task, task.error), MCPResult.of(own_word(task))
    if said is not None:
        return said
    if error is None:
        return MCPResult.error_result(f"The task is {task.state}")
    raised_here = tool_raised(task) and error.exception
    details = error.details or (f"{error.exception}: {error.message}" if raised_here else error.type)
    raised = raised_error(task)
    return MCPResult.error_result(error.message, details, None if raised is None else {"error": raised})


def progress_update(status: TaskStatus) -> ProgressUpdate:
    """How far a task is, in numbers and in words."""
    progress = status.task.progress
    message = (progress.message if progress else None) or progress_message(status)
    return ProgressUpdate.of(progress, message or STARTING)


class _Job:
    """One job, as a client that can be told of progress."""

    def __init__(self, job_id: str, outbox: Outbox, token: CallToken) -> None:
        self.job_id = job_id
        self.token = token
        self._outbox = outbox
        self._subject = f"start:{job_id}"

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """The first notification is never replaced by a later one."""
        named = about_job(self.job_id)
        self._outbox.put(self._subject, method, {**params, **named, "_meta": {**params["_meta"], **named}})
        self._subject = self.job_id


# -- who can take it -------------------------------------------------------------------------------


def asks_for_handle(ctx: RequestContext) -> bool:
    """Whether a call is to be answered with the handle at once: by its own word, or else its client's."""
    asked = request_meta(ctx).get(ASYNC)
    return _declared(ctx) if asked is None else asked is True


def takes_handle(ctx: RequestContext) -> bool:
    """Whether a call may be answered with a handle whatever its tool promises: it or its client says so."""
    return request_meta(ctx).get(ASYNC) is True or _declared(ctx)


def _declared(ctx: RequestContext) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and CAPABILITY in (capabilities.experimental or {})


def takes_results(ctx: RequestContext) -> bool:
    """Whether the client can take notifications of its jobs.

    It said so, by the capability `experimental.tool_result` or by `_meta.async` on a call; or it
    polled for a job before. Others would be puzzled by a method that they do not know, and by
    progress after the answer.
    """
    if _declared(ctx):
        return True
    if request_meta(ctx).get(ASYNC) is True:
        learn_two_stage(ctx)
        return True
    return bool(connection_state(ctx).get(_KNOWS_TWO_STAGE))


def learn_two_stage(ctx: RequestContext) -> None:
    """Note that this client knows two-stage calls."""
    connection_state(ctx)[_KNOWS_TWO_STAGE] = True
