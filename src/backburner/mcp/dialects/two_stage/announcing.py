"""Stages 2 and 3: clients that hold a job's handle are told how it goes on, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ....errors import NoClient, ProgressTimeout, TaskNotFound, TokenNotFound
from ....lifecycle import State
from ....service import TaskStatus
from ....task import Task
from ...access import TaskAccess, present
from ...following import follow
from ...jsonrpc_errors import raised_error
from ...outbox import Outbox, connection_state, outbox_of
from ...outcomes import tool_raised
from ...progress_tokens import ProgressTokens, ProgressUpdate, Token
from ...request import RequestContext, is_modern, request_meta
from ...sdk import connection_of
from ...status_words import progress_message
from .mcp_result import MCPResult
from .wire import ASYNC, CAPABILITY, RESULT_NEWS, STATUS, about_job

_KNOWS_TWO_STAGE = "backburner.two-stage"
_FOLLOWERS = "backburner.followers"


class Announcements:
    """Tells clients that hold a job's handle how it goes on."""

    def __init__(self, access: TaskAccess, tokens: ProgressTokens) -> None:
        self._access = access
        self._tokens = tokens
        self._followers: set[asyncio.Task[None]] = set()

    def announce(self, ctx: RequestContext, status: TaskStatus, token: Token) -> None:
        """Tell the client of the job from now on, if it can take that; returns at once.

        Nothing waits for the client: news goes through the outbox of its connection.
        """
        if not (self._access.settings.mcp.announce_jobs == "all" or takes_results(ctx)):
            return
        if is_modern(ctx) and ctx.request is not None:
            return  # over HTTP without sessions there is no stream to send on
        follower = asyncio.create_task(self._tell(outbox_of(ctx), status, token))
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        _end_with_connection(ctx, follower)

    async def _tell(self, outbox: Outbox, handed_out: TaskStatus, shown: Token) -> None:
        job, token = _Job(handed_out.task_id, outbox, shown), self._tokens.generate_token()
        status = handed_out
        try:
            async for status in follow(self._access.service, job.job_id, handed_out.task.owner):
                if outbox.closed:
                    return
                if not status.task.finished:
                    self._say(job, status, token)
            outbox.put(
                f"result:{job.job_id}",
                RESULT_NEWS,
                {
                    **about_job(job.job_id),
                    "result": (await self.result(status)).to_dict(),
                    "_meta": about_job(job.job_id),
                },
            )
        except TaskNotFound:
            return  # it expired, or was deleted: there is nothing to tell any more
        finally:
            self._tokens.cleanup_completed(token)

    def _say(self, job: _Job, status: TaskStatus, token: Token) -> None:
        update = progress_update(status)
        try:
            self._tokens.send_progress(token, update)
        except (TokenNotFound, ProgressTimeout, NoClient):
            self._tokens.track(token, status.task.tool_name, job, shown=job.token)
            self._tokens.send_progress(token, update)

    async def result(self, status: TaskStatus) -> MCPResult:
        """The result of a job that is over. Raises TaskNotFound once it has expired."""
        task = present(status).task
        if task.state is not State.SUCCEEDED:
            return failure(task)
        outcome = await self._access.outcome(task.task_id, task.owner)
        return success(task, outcome)


def success(task: Task, outcome: Mapping[str, Any]) -> MCPResult:
    """What a tool returned. A tool that returned an MCPResult's own form is taken at its word."""
    data = outcome.get("structuredContent")
    if not isinstance(data, dict):
        data = {"content": outcome.get("content", [])}
    if data.keys() == {"success", "data", "messages"}:
        return MCPResult(bool(data["success"]), data["data"], data["messages"])
    return MCPResult(data=data).add_success(f"{task.tool_name} completed successfully")


def failure(task: Task) -> MCPResult:
    error = task.error
    if error is None:
        return MCPResult.error_result(f"The task is {task.state}")
    details = error.details or (f"{error.exception}: {error.message}" if tool_raised(task) else error.type)
    raised = raised_error(task)
    return MCPResult.error_result(error.message, details, None if raised is None else {"error": raised})


def progress_update(status: TaskStatus) -> ProgressUpdate:
    """How far a task is, in percent and in words."""
    progress = status.task.progress
    message = (progress.message if progress else None) or progress_message(status)
    return ProgressUpdate(
        percentage=progress.percent if progress and progress.percent is not None else 0.0,
        message=message or STATUS[status.task.state],
        context=progress.context if progress else None,
    )


class _Job:
    """One job, as a client that can be told of progress."""

    def __init__(self, job_id: str, outbox: Outbox, token: Token) -> None:
        self.job_id = job_id
        self.token = token
        self._outbox = outbox

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Of a job the progress is a part of 1."""
        named = {**about_job(self.job_id), "progress": params["progress"] / params["total"], "total": 1}
        meta = {**params.get("_meta", {}), **about_job(self.job_id)}
        self._outbox.put(self.job_id, method, {**params, **named, "_meta": meta})


# -- who can take it -------------------------------------------------------------------------------


def takes_results(ctx: RequestContext) -> bool:
    """Whether the client can take notifications of its jobs.

    It said so, by the capability `experimental.tool_result` or by `_meta.async` on a call; or it
    polled for a job before. Others would be puzzled by a method that they do not know, and by
    progress after the answer.
    """
    declared = ctx.session.client_capabilities
    if declared is not None and CAPABILITY in (declared.experimental or {}):
        return True
    if request_meta(ctx).get(ASYNC) is True:
        learn_two_stage(ctx)
        return True
    return bool(connection_state(ctx).get(_KNOWS_TWO_STAGE))


def learn_two_stage(ctx: RequestContext) -> None:
    """Note that this client knows two-stage calls."""
    connection_state(ctx)[_KNOWS_TWO_STAGE] = True


def _end_with_connection(ctx: RequestContext, follower: asyncio.Task[None]) -> None:
    """When the client goes, nobody needs the follower. (Connections of the later era end with a request.)"""
    if is_modern(ctx):
        return
    followers = connection_state(ctx).get(_FOLLOWERS)
    if followers is None:
        followers = connection_state(ctx)[_FOLLOWERS] = set()
        connection_of(ctx.session).exit_stack.callback(_cancel_all, followers)
    followers.add(follower)
    follower.add_done_callback(followers.discard)


def _cancel_all(followers: set[asyncio.Task[None]]) -> None:
    for follower in list(followers):
        follower.cancel()
