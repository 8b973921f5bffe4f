"""Task operations of one MCP request, with ownership and tracing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from ..app import Backburner
from ..core.lifecycle import State
from ..core.requests import TaskRequest
from ..core.task import Answer, Task, TaskHead
from ..errors import BackburnerError, EngineError, TaskNotFound
from ..observability.counters import COUNTERS
from ..observability.tracing import (
    EXECUTE_TOOL,
    OPERATION,
    TASK_ID,
    TOOL,
    context_of,
    traceparent_of,
    tracestate_of,
)
from ..service.tasks import TaskResult, TaskService, TaskStatus
from ..settings import Settings
from ..tools.spec import ToolSpec
from .client_timeouts import TimeoutPolicy, may_be_retry
from .notifications import REQUEST, WEBHOOK, ChatNotifier
from .open_calls import NEW, OpenCalls
from .progress import token_meta
from .requests import (
    RequestContext,
    arguments_of,
    caller_of_request,
    has_left,
    is_traced,
    owner_of_request,
    request_meta,
    stored_request,
    supports_pages,
    traceparent_of_request,
    tracestate_of_request,
    valid_tracestate,
)
from .results import CLIENT, ArtifactLinks, ResultPresenter, call_tool_result, most_bytes, most_tokens
from .sdk import stream_of
from .updates import as_deleted

logger = logging.getLogger(__name__)

#: How long after its last poll a deleted task is shown as cancelled, and for how many tasks.
_DELETED_SHOWN_S, _MOST_POLLED = 600.0, 1000


class TaskAccess:
    """Gives requests access to tasks. The owner is that of the current request."""

    def __init__(self, app: Backburner) -> None:
        self.app = app
        self.chat = ChatNotifier(app)
        #: Name of the tool that reads parts of results; empty if there is none.
        self.read_tool = ""
        self.patience = TimeoutPolicy(app.settings, app)
        self._started: asyncio.Future[None] | None = None
        self.open_calls = OpenCalls(app)
        #: Unfinished tasks that clients polled: as they are shown once deleted, and until when.
        self._polled: OrderedDict[tuple[str, str], tuple[TaskStatus, float]] = OrderedDict()

    @property
    def settings(self) -> Settings:
        return self.app.settings

    @property
    def service(self) -> TaskService:
        return self.app.service

    @cached_property
    def links(self) -> ArtifactLinks:
        return ArtifactLinks(
            self.app.store,
            self.settings.http.public_url,
            self.settings.http.artifact_link_s,
            self.app.artifacts.link,
        )

    def wake(self) -> None:
        """Open the store and start the engine in the background; later calls do nothing."""
        if self._started is None:
            self._started = asyncio.ensure_future(asyncio.to_thread(self.app.start))

    async def ready(self) -> None:
        """Wait until the store is open and the engine has started.

        Raises StoreError, and EngineError for an app without a target. Other engine errors are logged: the
        engine retries, and tasks stay queued until then.
        """
        self.wake()
        assert self._started is not None, "wake has started it"
        try:
            await asyncio.shield(self._started)
        except BackburnerError as error:
            self._started = None  # so that the next request retries
            if not isinstance(error, EngineError) or not self.app.target:
                raise
            logger.warning("Tasks are stored, but the engine has not started yet: %s", error)

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
        """Store the task of a `tools/call` request, and return its status once it is on disk.

        Returns the task of an earlier identical call that was given up; the status then says `joined`. A call
        that names its task or answers questions never joins.
        """
        await self.ready()
        traceparent, tracestate = _trace_context(ctx)
        request = TaskRequest(
            spec.name,
            arguments_of(ctx),
            owner=owner_of_request(),
            ttl_s=ttl_s,
            external_id=external_id,
            traceparent=traceparent,
            tracestate=tracestate,
            answers=answers or {},
            caller=caller_of_request(),
            meta=self._stored_meta(ctx, spec),
            webhook=request_meta(ctx).get(WEBHOOK),
        )
        status = await self._store_or_join(ctx, spec, request)
        if is_traced():
            trace.get_current_span().set_attribute(TASK_ID, status.task_id)
        return status

    async def _store_or_join(self, ctx: RequestContext, spec: ToolSpec, request: TaskRequest) -> TaskStatus:
        aio, window_s = self.service.aio, self.settings.mcp.join_window_s
        new = await aio.new_task(request)
        if request.external_id is not None or request.answers or not window_s or spec.join == "never":
            return await aio.submit_new(new)
        if request_meta(ctx).get(NEW) is not True:
            status = await self.open_calls.join(new, spec.join, partial(self._is_abandoned, ctx))
            if status is not None:
                COUNTERS.joined_calls += 1
                return replace(status, joined=True)
        with self.open_calls.opening(new):
            return await aio.submit_new(new)

    async def _is_abandoned(self, ctx: RequestContext, held: RequestContext, held_s: float) -> bool:
        """Return whether the client of `held` may be gone, now that `ctx` sends the same call."""
        if stream_of(ctx.session) == stream_of(held.session) and may_be_retry(ctx, held_s):
            self.patience.note_retry(ctx, held_s)
            return True
        return await has_left(held)

    def _stored_meta(self, ctx: RequestContext, spec: ToolSpec) -> dict[str, Any]:
        token = token_meta(request_meta(ctx).get("progressToken"))
        if spec.result_kind == "value":  # only frameworks show requests to tools
            return token
        return {**token, **stored_request(ctx, self.settings.mcp.kept_headers)}

    # -- reading

    async def status(self, task_id: str) -> TaskStatus:
        """Return a task's status. Raises TaskNotFound, also for expired tasks and other owners' tasks."""
        return unexpired(await self.service.aio.status(task_id, owner=owner_of_request()))

    async def polled(self, task_id: str) -> TaskStatus:
        """Return the status for a client that polls until the end. Raises TaskNotFound.

        A task that is deleted between two polls is shown as cancelled for some minutes, because some clients
        poll an unknown task for ever.
        """
        key = (task_id, owner_of_request())
        try:
            status = await self.status(task_id)
        except TaskNotFound:
            deleted, until = self._polled.get(key, (None, 0.0))
            if deleted is None or time.monotonic() > until:
                raise
            return deleted
        self._polled.pop(key, None)
        if not status.task.finished:
            self._polled[key] = as_deleted(status), time.monotonic() + _DELETED_SHOWN_S
            if len(self._polled) > _MOST_POLLED:
                self._polled.popitem(last=False)
        return status

    async def head(self, task_id: str) -> TaskHead:
        """Return a task's head. Raises TaskNotFound as `status` does."""
        head = await self.service.aio.head(task_id, owner=owner_of_request())
        if head.state is State.EXPIRED:
            raise TaskNotFound(task_id=task_id)
        return head

    async def heads(self, task_ids: Sequence[str]) -> Mapping[str, TaskHead]:
        """Return several heads in one read. Raises TaskNotFound if one is missing."""
        service = self.service
        heads = await service.aio.look(service.heads, task_ids, owner=owner_of_request())
        for task_id, head in heads.items():
            if head.state is State.EXPIRED:
                raise TaskNotFound(task_id=task_id)
        return heads

    def artifacts_of(self, task_id: str, owner: str) -> dict[str, Any]:
        """Return the artifacts of a task, finished or not. Raises TaskNotFound. Blocks."""
        task = unexpired(self.service.status(task_id, owner=owner)).task
        return self.links.shown(task, self.service.artifacts(task_id, owner=owner))

    async def outcome(self, task: Task) -> dict[str, Any]:
        """Return the `CallToolResult` of a finished task that has one."""
        artifacts = await self.service.aio.look(self.service.store.artifacts, task.task_id)
        outcome = TaskResult(task, artifacts)
        show = partial(call_tool_result, outcome, self.presenter, typed=self._is_typed(task))
        return await self.service.aio.run(show) if artifacts else show()  # only reading files blocks

    async def delivered(self, task: Task) -> None:
        """Record that a task tool has returned the result: no call joins the task, and no card reports it."""
        self.open_calls.close(task.task_id)
        ctx = REQUEST.get()
        if ctx is not None and supports_pages(ctx):
            with suppress(BackburnerError):
                await self.service.aio.run(self.service.tell_model, task.task_id, owner=task.owner)

    @property
    def presenter(self) -> ResultPresenter:
        """Presenter for the client of the current request."""
        client, settings = CLIENT.get(), self.settings
        limits = most_tokens(client, settings), most_bytes(client)
        return ResultPresenter(self.links, self.app.artifacts, *limits, self.read_tool)

    def _is_typed(self, task: Task) -> bool:
        """Return whether the tool has an output schema; an unknown tool with results of its own counts as
        typed.
        """
        tools, name = self.app.tools, task.tool_name
        if name in tools:
            return tools.get(name).output_schema is not None
        return task.result_kind == "call_tool_result"


def unexpired(status: TaskStatus) -> TaskStatus:
    """Return the status. Raises TaskNotFound if the task has expired."""
    if status.task.state is State.EXPIRED:
        raise TaskNotFound(task_id=status.task_id)
    return status


_TRACER = trace.get_tracer("backburner")


@contextmanager
def tool_call_span(ctx: RequestContext, tool_name: str) -> Iterator[None]:
    """Trace the call in its own span, unless the framework has opened one."""
    if trace.get_current_span().is_recording():
        yield
        return
    attributes = {"mcp.method.name": ctx.method, "mcp.protocol.version": ctx.protocol_version}
    attributes |= {"jsonrpc.request.id": str(ctx.request_id), OPERATION: EXECUTE_TOOL, TOOL: tool_name}
    named = traceparent_of_request(ctx)
    with _TRACER.start_as_current_span(
        f"{ctx.method} {tool_name}",
        kind=SpanKind.SERVER,
        context=None if named is None else context_of(named, tracestate_of_request(ctx)),
        attributes=attributes,
    ):
        yield


def _trace_context(ctx: RequestContext) -> tuple[str | None, str | None]:
    """Return traceparent and tracestate of the current span, or else those of the request."""
    if is_traced() and (parent := traceparent_of(span := trace.get_current_span())):
        return parent, valid_tracestate(tracestate_of(span))
    return traceparent_of_request(ctx), tracestate_of_request(ctx)
