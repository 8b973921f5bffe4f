"""Client side of the two-stage return: polls, or listens to notifications.

Uses the task tools where the server has them. Other servers deliver each result only once, by a notification
or a poll, so everything received is stored here, also for unknown jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic import ValidationError

from ....errors import NotOffered, ResultLost
from ...connection import Connection, Link
from ...updates import TaskProgress, Update
from ..client import PROGRESS, ClientDialect, Subscription
from ..task_tools.client import TaskToolsClient, is_among
from . import wire

#: Above this number of jobs the oldest idle one is forgotten.
_MOST_JOBS = 1000
_MOST_UNTOLD = 100
#: Error codes for an unknown method; older SDKs call the request invalid.
_UNKNOWN_METHOD = (METHOD_NOT_FOUND, INVALID_PARAMS)


@dataclass(eq=False)
class _Job:
    """State of a job."""

    #: The connection that returned the handle; None for a resumed job.
    link: Link | None = None
    #: Whether the server has the task tools; None if unknown.
    by_tools: bool | None = None
    poll: str = wire.POLL
    progress: TaskProgress | None = None
    result: types.CallToolResult | None = None
    #: Set while there is unread news.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    untold: deque[Update] = field(default_factory=lambda: deque(maxlen=_MOST_UNTOLD))
    polling: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if no caller waits for it: it is not ours, or its result was taken."""
        taken = self.result is not None and not self.news.is_set()
        return taken or self.link is None or self.by_tools is True

    def ends(self, result: Any) -> None:
        """Store the result, in whatever form: it is delivered only once."""
        try:
            self.result = wire.tool_result(result)
        except ValidationError:
            said = [{"text": "The server gave a result that is not in the form of a tool's result"}]
            self.result = wire.tool_result({"success": False, "data": result, "messages": said})
        self.news.set()

    def goes_on(self, progress: TaskProgress) -> None:
        """Store progress, unless it repeats the known step without a message."""
        known = self.progress
        if known is None or progress.message or progress.percent != known.percent:
            self.progress = progress

    def answers(self, progress: TaskProgress) -> None:
        """Store progress from a poll, which may be older than a notification."""
        if self.progress is None or (progress.percent or 0) >= (self.progress.percent or 0):
            self.goes_on(progress)


class TwoStageClient(ClientDialect):
    """For servers that return a `job_id` in place of a result."""

    name: ClassVar[str] = wire.NAME

    def __init__(self, connection: Connection, tools: TaskToolsClient, *, asks: bool) -> None:
        """`asks` requests handles; a server may return one without."""
        self._asks = asks
        self._connection = connection
        self._tools = tools
        self._jobs: dict[str, _Job] = {}
        #: The connection whose server does not support polling.
        self._unpolled: Link | None = None

    def ask_for_task(self, link: Link, tool: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Request the handle and its notifications."""
        return {**params, "_meta": {**params.get("_meta", {}), wire.ASYNC: True}} if self._asks else params

    def task_in(self, result: Mapping[str, Any], link: Link) -> str | None:
        job_id = wire.task_in(result)
        if job_id is None:
            return None
        job = self._job(job_id)
        if job.link is not None and (job.link is not link or job.result is not None):
            job = self._jobs[job_id] = _Job()  # a restarted server may reuse ids
        job.link, job.by_tools = link, is_among(link.tools or {})
        job.poll = wire.poll_endpoint(result) or wire.POLL
        return job_id

    def can_resume(self, task_id: str, link: Link, *, own: bool) -> bool:
        return True

    # -- notifications

    def _job(self, job_id: str) -> _Job:
        job = self._jobs.get(job_id)
        if job is None:
            if len(self._jobs) >= _MOST_JOBS:
                oldest = next((key for key, known in self._jobs.items() if known.is_idle), None)
                self._jobs.pop(oldest or "", None)
            job = self._jobs[job_id] = _Job()
        return job

    def heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        job_id = wire.task_in_news(params) if method in (PROGRESS, wire.RESULT_NEWS) else None
        if job_id is None:
            return None
        job = self._job(job_id)
        if job.result is None:
            if method == wire.RESULT_NEWS:
                job.ends(params.get("result"))
            else:
                job.goes_on(_progress(params))
                job.untold.append(Update(job_id, "working", progress=job.progress))
                job.news.set()
        return job_id

    @contextlib.asynccontextmanager
    async def subscribed(self, task_id: str) -> AsyncIterator[Subscription]:
        job = self._job(task_id)
        with self._connection.subscription(task_id) as event:
            yield Subscription(event, None if await self._by_tools(job) else job.untold)

    # -- requests

    async def _by_tools(self, job: _Job) -> bool:
        if job.by_tools is None:
            job.by_tools = await self._tools.offered()
        return job.by_tools

    async def read(self, task_id: str) -> Update:
        """Raises ResultLost when the server can no longer deliver the result."""
        job = self._job(task_id)
        if await self._by_tools(job):
            return await self._tools.read(task_id)
        if job.result is None and not job.news.is_set():
            if job.link is not None and job.link is self._unpolled and not job.link.alive:
                raise _lost(task_id, job, "its server told results by notifications alone, and is gone")
            await self._connection.until_answered(partial(self._ask, task_id, job))
        job.news.clear()
        if job.result is not None:
            return Update(task_id, "completed", result=job.result)
        return Update(task_id, "working", progress=job.progress)

    async def _ask(self, task_id: str, job: _Job, link: Link) -> None:
        """Poll until there is an answer or a notification.

        A poll outlives its caller: its answer may be the only one with the result.
        """
        if job.polling is None or job.polling.done():
            job.polling = asyncio.ensure_future(self._poll(task_id, job, link))
            job.polling.add_done_callback(lambda done: done.cancelled() or done.exception())
        heard = asyncio.ensure_future(job.news.wait())
        waiting: set[asyncio.Future[Any]] = {job.polling, heard}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()
        if not job.news.is_set():
            job.polling.result()
        if self._unpolled is link and job.link is not link and job.result is None:
            raise _lost(task_id, job, "its server tells results once, on the connection of the call")

    async def _poll(self, task_id: str, job: _Job, link: Link) -> None:
        if self._unpolled is link:  # only check that it is alive
            with contextlib.suppress(MCPError):
                await link.request("ping", {})
            return
        try:
            body = wire.body_in(await link.request(job.poll, wire.named(task_id))) or {}
        except MCPError as error:
            if error.code not in _UNKNOWN_METHOD:
                raise
            self._unpolled = link
            return
        if not body.get("success"):
            said = wire.words_of(body) or "Job not found"
            if job.link is not None:
                raise _lost(task_id, job, f"its server says {said!r}")
            raise MCPError(INTERNAL_ERROR, said)
        data = body["data"] if isinstance(body["data"], Mapping) else {"result": body["data"]}
        if data.get("status") in wire.UNFINISHED:
            job.answers(_progress(data))
        else:
            job.ends(data.get("result", data))

    async def result(self, task_id: str) -> types.CallToolResult:
        if await self._by_tools(self._job(task_id)):
            return await self._tools.result(task_id)
        update = await self.read(task_id)
        if update.result is None:
            raise MCPError(INTERNAL_ERROR, f"The job {task_id} is not over")
        return update.result

    async def cancel(self, task_id: str) -> None:
        await self._tools.cancel(task_id)

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None:
        raise NotOffered(what="a way to answer questions", task_id=task_id)


def _progress(told: Mapping[str, Any]) -> TaskProgress:
    """Return the progress, a fraction of 1 or of the given total."""
    share, total, message = told.get("progress"), told.get("total") or 1, told.get("message")
    percent = None
    if isinstance(share, int | float) and isinstance(total, int | float) and math.isfinite(share / total):
        percent = round(100 * share / total, 6)
    return TaskProgress(percent, message=message if isinstance(message, str) else None)


def _lost(task_id: str, job: _Job, reason: str) -> ResultLost:
    known = job.progress
    at = f"at {known.percent:.0f}%" if known and known.percent is not None else ""
    said = f"saying {known.message!r}" if known and known.message else ""
    words = " ".join(filter(None, (at, said)))
    heard = f"It was last heard of {words}." if words else "Nothing was heard of it."
    return ResultLost(task_id=task_id, reason=reason, known=heard)
