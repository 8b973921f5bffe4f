"""Stages 2 and 3 of the two-stage return, by notifications, and the polling that does without them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from pydantic import Field

from ....clock import SystemClock
from ....errors import BackburnerError, NoClient, ProgressTimeout, TaskNotFound, TokenNotFound
from ....lifecycle import State
from ....service import TaskStatus
from ....task import Task
from ....times import iso
from ...access import TaskAccess
from ...following import follow
from ...mapping import TWO_STAGE, present, progress_message, tool_raised
from ...outbox import Outbox, outbox_of
from ...progress_tokens import ProgressTokens, ProgressUpdate, Token
from ...request import RequestContext, connection_of, is_modern, request_meta
from .mcp_result import MCPResult

#: What a client declares under `experimental` to be told of progress and results of its jobs.
CAPABILITY = "tool_result"
POLL = "tools/poll_result"

_TWO_STAGE = "backburner.two-stage"
_FOLLOWERS = "backburner.followers"
_clock = SystemClock()


class PollParams(types.RequestParams):
    """Which job; the name has no camels, unlike the protocol's own."""

    job_id: str = Field(alias="job_id")


class Stages:
    """Tells clients that hold a job's handle how it goes on."""

    def __init__(self, access: TaskAccess, tokens: ProgressTokens) -> None:
        self._access = access
        self._tokens = tokens
        self._followers: set[asyncio.Task[None]] = set()

    def announce(self, ctx: RequestContext, status: TaskStatus, token: Token) -> None:
        """Tell the client of the job from now on, if it can take that; returns at once.

        Nothing waits for the client: news goes through the outbox of its connection.
        """
        if not (self._access.settings.announce_jobs == "all" or takes_results(ctx)):
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
                "notifications/tool_result",
                {**job.names(), "result": (await self.result(status)).to_dict(), "_meta": job.names()},
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

    # -- results

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
        data: dict[str, Any] = {"job_id": status.task_id, "status": TWO_STAGE[status.task.state]}
        if status.task.finished:
            data["result"] = (await self.result(status)).to_dict()
        else:
            update = progress_update(status)
            data |= {"progress": (update.percentage or 0.0) / 100, "message": update.message}
        return MCPResult(data=data).to_dict()

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
    return MCPResult.error_result(error.message, details)


def progress_update(status: TaskStatus) -> ProgressUpdate:
    """How far a task is, in percent and in words."""
    progress = status.task.progress
    message = (progress.message if progress else None) or progress_message(status)
    return ProgressUpdate(
        percentage=progress.percent if progress and progress.percent is not None else 0.0,
        message=message or TWO_STAGE[status.task.state],
        context=progress.context if progress else None,
    )


class _Job:
    """One job, as a client that can be told of progress."""

    def __init__(self, job_id: str, outbox: Outbox, token: Token) -> None:
        self.job_id = job_id
        self.token = token
        self._outbox = outbox

    def names(self) -> dict[str, Any]:
        return {"job_id": self.job_id, "timestamp": iso(_clock.now_ms())}

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Of a job the progress is a part of 1."""
        named = {**self.names(), "progress": params["progress"] / params["total"], "total": 1}
        meta = {**params.get("_meta", {}), **self.names()}
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
    if request_meta(ctx).get("async") is True:
        learn_two_stage(ctx)
        return True
    return bool(_state(ctx).get(_TWO_STAGE))


def learn_two_stage(ctx: RequestContext) -> None:
    """Note that this client knows two-stage calls."""
    _state(ctx)[_TWO_STAGE] = True


def _state(ctx: RequestContext) -> dict[str, Any]:
    state: dict[str, Any] | None = getattr(connection_of(ctx), "state", None)
    return {} if state is None else state


def _end_with_connection(ctx: RequestContext, follower: asyncio.Task[None]) -> None:
    """When the client goes, nobody needs the follower. (Connections of the later era end with a request.)"""
    if is_modern(ctx):
        return
    connection = connection_of(ctx)
    followers = _state(ctx).get(_FOLLOWERS)
    if followers is None:
        followers = _state(ctx)[_FOLLOWERS] = set()
        with contextlib.suppress(AttributeError):
            connection.exit_stack.callback(_cancel_all, followers)
    followers.add(follower)
    follower.add_done_callback(followers.discard)


def _cancel_all(followers: set[asyncio.Task[None]]) -> None:
    for follower in list(followers):
        follower.cancel()
