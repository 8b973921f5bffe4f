"""Tasks as a request may see them: what every dialect does with the TaskService."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ..app import Backburner
from ..config import Settings
from ..errors import BackburnerError, EngineError, TaskNotFound
from ..figures import FIGURES
from ..lifecycle import State
from ..service import TaskResult, TaskService, TaskStatus
from ..task import Answer, Task, TaskHead
from ..task_request import TaskRequest
from ..tools import ToolSpec
from .call_spans import became, traceparent_for, tracestate_for
from .kept_request import kept_request
from .links import Links
from .open_calls import NEW, OpenCalls
from .outcomes import call_tool_result
from .patience import Patience
from .progress_tokens import kept
from .request import (
    RequestContext,
    arguments_of,
    caller_of_request,
    has_left,
    is_traced,
    owner_of_request,
    request_meta,
    traceparent_of_request,
    tracestate_of_request,
)
from .sdk import stream_of
from .showing import CLIENT, Showing, most_bytes, most_tokens
from .telling import WEBHOOK, ChatWaking
from .timeouts import may_be_repeated

logger = logging.getLogger(__name__)


class TaskAccess:
    """The door from requests to tasks. The owner is always the one of the request that is being served."""

    def __init__(self, app: Backburner) -> None:
        self.app = app
        self.waking = ChatWaking(app)
        #: The tool by which parts of results are read, where there is one.
        self.reading_tool = ""
        self.patience = Patience(app.settings, app)
        self._started: asyncio.Future[None] | None = None
        self.open_calls = OpenCalls(app)

    @property
    def settings(self) -> Settings:
        return self.app.settings

    @property
    def service(self) -> TaskService:
        return self.app.service

    @cached_property
    def links(self) -> Links:
        return Links(
            self.app.store,
            self.settings.http.public_url,
            self.settings.http.artifact_link_s,
            self.app.artifacts.link,
        )

    def wake(self) -> None:
        """Open the store and get the work going, in the background; only the first call does anything."""
        if self._started is None:
            self._started = asyncio.ensure_future(asyncio.to_thread(self.app.start))

    async def ready(self) -> None:
        """Wait until the store is open, and until somebody works on it if that is possible.

        Raises what opening the store raises, and EngineError for an app that nobody could ever work for.
        Who cannot be started now may be later: the engine goes on trying, and tasks are kept until then.
        """
        self.wake()
        assert self._started is not None, "wake has started it"
        try:
            await asyncio.shield(self._started)
        except BackburnerError as error:
            self._started = None  # the next request may have more luck
            if not isinstance(error, EngineError) or not self.app.target:
                raise
            logger.warning("Tasks are kept, but nobody works on them yet: %s", error)

    # -- submitting

    async def submit(
        self,
        ctx: RequestContext,
        spec: ToolSpec,
        *,
        ttl_s: float | None = None,
        answers: Mapping[str, Answer] | None = None,
        external_id: str | None = None,
    ) -> TaskStatus:
        """Make the task of a `tools/call` request; it is on disk when this returns.

        Or find that of the same call, made before and given up: then the status says `joined`. A call that
        names its task, or has answered questions, is never taken for another.
        """
        await self.ready()
        request = TaskRequest(
            spec.name,
            arguments_of(ctx),
            owner=owner_of_request(),
            ttl_s=ttl_s,
            external_id=external_id,
            traceparent=traceparent_for(ctx) if is_traced() else traceparent_of_request(ctx),
            tracestate=tracestate_for(ctx) if is_traced() else tracestate_of_request(ctx),
            answers=answers or {},
            caller=caller_of_request(),
            meta=self._kept(ctx, spec),
            webhook=request_meta(ctx).get(WEBHOOK),
        )
        status = await self._kept_or_joined(ctx, spec, request)
        if is_traced():
            became(status.task_id)
        return status

    async def _kept_or_joined(self, ctx: RequestContext, spec: ToolSpec, request: TaskRequest) -> TaskStatus:
        aio, window_s = self.service.aio, self.settings.mcp.join_window_s
        new = await aio.new_task(request)
        if request.external_id is not None or request.answers or not window_s or spec.join == "never":
            return await aio.keep(new)
        if request_meta(ctx).get(NEW) is not True:
            status = await self.open_calls.join(new, spec.join, partial(_is_abandoned, ctx))
            if status is not None:
                FIGURES.joined_calls += 1
                return replace(status, joined=True)
        with self.open_calls.opening(new):
            return await aio.keep(new)

    def _kept(self, ctx: RequestContext, spec: ToolSpec) -> dict[str, Any]:
        """What of the request is kept with its task. Only frameworks show requests to tools."""
        token = kept(request_meta(ctx).get("progressToken"))
        if spec.result_kind == "value":
            return token
        return {**token, **kept_request(ctx, self.settings.mcp.kept_headers)}

    # -- reading

    async def status(self, task_id: str) -> TaskStatus:
        """Raises TaskNotFound, also for another owner's task and an expired one."""
        return present(await self.service.aio.status(task_id, owner=owner_of_request()))

    async def head(self, task_id: str) -> TaskHead:
        """As `status`, for those who need no more than to know that the task is there."""
        head = await self.service.aio.head(task_id, owner=owner_of_request())
        if head.state is State.EXPIRED:
            raise TaskNotFound(task_id=task_id)
        return head

    async def heads(self, task_ids: Sequence[str]) -> Mapping[str, TaskHead]:
        """The same for several, by one read. Raises TaskNotFound if one is not there."""
        service = self.service
        heads = await service.aio.look(service.heads, task_ids, owner=owner_of_request())
        for task_id, head in heads.items():
            if head.state is State.EXPIRED:
                raise TaskNotFound(task_id=task_id)
        return heads

    async def artifacts(self, task_id: str) -> dict[str, Any]:
        """What a task has made, finished or not. Raises TaskNotFound as `status` does."""
        return await self.service.aio.run(self.artifacts_of, task_id, owner_of_request())

    def artifacts_of(self, task_id: str, owner: str) -> dict[str, Any]:
        """The same for a thread of its own."""
        task = present(self.service.status(task_id, owner=owner)).task
        return self.links.shown(task, self.service.artifacts(task_id, owner=owner))

    async def outcome(self, task: Task) -> dict[str, Any]:
        """The `CallToolResult` of a finished task that has one."""
        artifacts = await self.service.aio.look(self.service.store.artifacts, task.task_id)
        outcome = TaskResult(task, artifacts)
        show = partial(call_tool_result, outcome, self.showing, typed=self._is_typed(task))
        return await self.service.aio.run(show) if artifacts else show()  # only files take their time

    @property
    def showing(self) -> Showing:
        """How the client of the request that is being answered is shown results."""
        client, settings = CLIENT.get(), self.settings
        limits = most_tokens(client, settings), most_bytes(client, settings)
        return Showing(self.links, self.app.artifacts, *limits, self.reading_tool)

    def _is_typed(self, task: Task) -> bool:
        """Whether the tool has an output schema; of one that is not known here, it is taken to."""
        tools, name = self.app.tools, task.tool_name
        if name in tools:
            return tools.get(name).output_schema is not None
        return task.result_kind == "call_tool_result"


async def _is_abandoned(ctx: RequestContext, held: RequestContext, held_s: float) -> bool:
    """Whether nobody may be behind a request that is held, now that `ctx` asks for the same."""
    same_client = stream_of(ctx.session) == stream_of(held.session)
    return (same_client and may_be_repeated(ctx, held_s)) or await has_left(held)


def present(status: TaskStatus) -> TaskStatus:
    """The same status, unless the task has expired: then it is gone for every client."""
    if status.task.state is State.EXPIRED:
        raise TaskNotFound(task_id=status.task_id)
    return status
