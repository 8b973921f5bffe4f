"""A server for hosts without task support, in front of a server with tasks.

Each call is held, with progress, as long as the host waits; then the host gets a handle and a tool to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict

from ..errors import BackburnerError
from ..mcp.client_timeouts import LATE_S, TimeoutPolicy, requesting_client
from ..mcp.dialects.task_tools.wire import CANCEL_TASK, WAIT_FOR_TASK, estimated
from ..mcp.dialects.tasks_2026.wire import EXTENSION
from ..mcp.dialects.two_stage import wire
from ..mcp.framing import framed_stdio
from ..mcp.open_calls import NEW, as_joined
from ..mcp.requests import request_meta
from ..mcp.updates import Update
from ..settings import Settings
from ..tools.estimates import DEFAULT_ESTIMATE_S, EstimateSource, ExpectedRuntime
from ..version import VERSION
from .client import BackburnerClient
from .handle import TaskHandle

_ELICITATION = types.ClientCapabilities(elicitation=types.ElicitationCapability())
_TASK_ID = {"type": "string", "description": "The task_id (or job_id) that the call gave you"}
_OWN_TOOLS: dict[str, dict[str, Any]] = {
    WAIT_FOR_TASK: {
        "description": (
            "Wait for a tool call that goes on in the background. Gives the call's own result when it is"
            " there. If it is not there in time, says how far it is: then call this again."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "task_id": _TASK_ID,
                "timeout_s": {"type": "number", "description": "How long to wait at most, in seconds"},
                "cursor": {"type": "string", "description": "cursor of the last answer"},
            },
            "required": ["task_id"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    CANCEL_TASK: {
        "description": "Stop a tool call that goes on in the background.",
        "inputSchema": {"type": "object", "properties": {"task_id": _TASK_ID}, "required": ["task_id"]},
        "annotations": {"readOnlyHint": False, "openWorldHint": False},
    },
}

#: A server that makes tasks of slow calls answers them within this time, unless it holds the call.
_TASK_ANSWER_S = 10.0

Context = ServerRequestContext[Any, Any]


class _Params(types.RequestParams):
    model_config = ConfigDict(extra="allow")


Handler = Callable[[Context, _Params], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class _Call:
    """A call of the host. `key` identifies identical calls; None for `wait_for_task`."""

    handle: TaskHandle
    key: str | None = None
    typed: bool = False
    joined: bool = False

    def said(self, result: dict[str, Any]) -> dict[str, Any]:
        return as_joined(result, self.handle.task_id, typed=self.typed) if self.joined else result


class Bridge:
    """Serves a host over stdio; `target` is that of BackburnerClient."""

    def __init__(self, target: Any, *, settings: Settings | None = None, **options: Any) -> None:
        self._settings = settings or Settings.load("bridge")
        self._patience = TimeoutPolicy(self._settings)
        # Its own client name, so that results have the size limit of hosts.
        info = types.Implementation(name="bridge", version=VERSION)
        self._client = BackburnerClient(
            target, elicitation_callback=self._elicit, **{"client_info": info, **options}
        )
        self._host: Context | None = None
        #: Calls by request, with the time of their arrival.
        self._held: dict[Any, tuple[asyncio.Task[_Call], float]] = {}
        self._handles: dict[str, TaskHandle] = {}
        self._given_up: dict[str, tuple[_Call, float]] = {}

    async def run(self) -> None:
        """Connect to the server, then serve the host until it disconnects. Raises ConnectionLost."""
        async with self.serving() as server, framed_stdio() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Server[Any]]:
        """Yield the server for the host, while the one behind it is connected."""
        async with self._client as client:
            link = await client.connection.link()
            info, offered = link.session.server_info, link.session.server_capabilities
            server: Server[Any] = Server(
                info.name if info else "bridge",
                version=info.version if info else VERSION,
                instructions=link.session.instructions,
            )
            server.middleware.append(self._hear_cancelled)
            handlers: dict[str, Handler] = {"tools/list": self._list_tools, "tools/call": self._call_tool}
            forwarded = {
                "resources": ("resources/list", "resources/templates/list", "resources/read"),
                "prompts": ("prompts/list", "prompts/get"),
                "completions": ("completion/complete",),
            }
            for capability, methods in forwarded.items():
                if getattr(offered, capability, None) is not None:
                    handlers.update(dict.fromkeys(methods, self._forward))
            for method, handler in handlers.items():
                server.add_request_handler(method, _Params, _in_words_of_host(handler))
            try:
                yield server
            finally:
                for starting, _ in self._held.values():
                    starting.cancel()

    # -- forwarding

    async def _forward(self, ctx: Context, params: _Params) -> dict[str, Any]:
        given = {key: value for key, value in (ctx.params or {}).items() if key != "_meta"}
        return await self._client.connection.request(ctx.method, given)

    async def _list_tools(self, ctx: Context, params: _Params) -> dict[str, Any]:
        tools = await self._client.connection.tools(fresh=True)
        shown = [_for_host(tool) for name, tool in tools.items() if name not in _OWN_TOOLS]
        return {"tools": [*shown, *({"name": name, **tool} for name, tool in _OWN_TOOLS.items())]}

    # -- calls

    async def _call_tool(self, ctx: Context, params: _Params) -> dict[str, Any]:
        given = ctx.params or {}
        name, arguments = given["name"], given.get("arguments") or {}
        self._host = ctx
        progress, came_at = _Progress(ctx), time.monotonic()
        try:
            if name == CANCEL_TASK:
                handle = await self._handle(arguments)
                await handle.cancel()
                self._forget(handle.task_id)
                return _text("The task is asked to stop.")
            patience = self._patience.hold_s(ctx)
            listed = (await self._client.connection.tools()).get(name, {})
            typed = name not in _OWN_TOOLS and bool(listed.get("outputSchema"))
            async with progress.beating(self._patience.limits_of(ctx).heartbeat_s):
                if name == WAIT_FOR_TASK:
                    starting = self._resumed(arguments)
                    wanted = arguments.get("timeout_s")
                    patience = min((s for s in (patience, wanted) if s is not None), default=None)
                else:
                    if typed and not self._patience.gives_up(ctx):
                        patience = None  # only the result matches the schema (docs/decisions/0020)
                    starting = self._started(ctx, name, arguments, progress, typed=typed)
                call = await self._register(ctx, asyncio.ensure_future(starting), came_at)
                left_s = None if patience is None else max(0, patience - (time.monotonic() - came_at))
                return await self._hold(ctx, call, left_s, progress)
        except BackburnerError as error:
            return _text(str(error), is_error=True)
        except MCPError as error:
            if name not in _OWN_TOOLS:
                raise
            return _text(str(error), is_error=True)

    async def _handle(self, arguments: dict[str, Any]) -> TaskHandle:
        task_id = str(arguments.get("task_id"))
        return self._handles.get(task_id) or await self._client.resume(task_id)

    async def _resumed(self, arguments: dict[str, Any]) -> _Call:
        return _Call(await self._handle(arguments))

    async def _started(
        self, ctx: Context, name: str, arguments: dict[str, Any], progress: _Progress, *, typed: bool
    ) -> _Call:
        """Return the call's task, or that of an identical call that the host gave up."""
        key = json.dumps([name, arguments], sort_keys=True)
        if request_meta(ctx).get(NEW) is not True:
            known, until = self._given_up.pop(key, (None, 0.0))
            if known is not None and time.monotonic() < until:
                return replace(known, joined=True)
        handle = await self._client.start(name, arguments, on_update=progress.say)
        return _Call(handle, key, typed=typed)

    async def _register(self, ctx: Context, starting: asyncio.Task[_Call], came_at: float) -> _Call:
        """Wait for the call's task. A host that stops waiting before its id is here can still cancel it."""
        self._held[ctx.request_id] = starting, came_at
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._abandoned)
            self._release(ctx, LATE_S)
            raise
        except BaseException:
            self._release(ctx)
            raise

    def _abandoned(self, starting: asyncio.Task[_Call]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._give_up(starting.result())

    def _release(self, ctx: Context, after_s: float = 0.0) -> None:
        asyncio.get_running_loop().call_later(after_s, self._held.pop, ctx.request_id, None)

    async def _hold(
        self, ctx: Context, call: _Call, patience: float | None, progress: _Progress
    ) -> dict[str, Any]:
        kept_s = 0.0
        try:
            async with asyncio.timeout(patience):
                result = await call.handle.result(progress.say)
        except TimeoutError:
            self._give_up(call)
            handed_out = _handed_out(call.handle, progress.last, typed=call.typed)
            return call.said(wire.too_early(handed_out) if call.typed else handed_out)
        except asyncio.CancelledError:
            self._give_up(call)
            kept_s = LATE_S  # a cancel notification may follow
            raise
        finally:
            self._release(ctx, kept_s)
        self._forget(call.handle.task_id)
        return call.said(result.model_dump(by_alias=True, mode="json", exclude_none=True))

    def _give_up(self, call: _Call) -> None:
        """Keep the task for an identical call, and for `wait_for_task`."""
        now = time.monotonic()
        self._handles[call.handle.task_id] = call.handle
        self._given_up = {key: known for key, known in self._given_up.items() if now < known[1]}
        if call.key is not None:
            self._given_up[call.key] = call, now + self._settings.mcp.join_window_s

    def _forget(self, task_id: str) -> None:
        """Drop a call whose result was delivered or is not wanted."""
        self._handles.pop(task_id, None)
        for key in [key for key, (call, _) in self._given_up.items() if call.handle.task_id == task_id]:
            del self._given_up[key]

    async def _hear_cancelled(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Cancel the task of a call that the host cancelled, unless its timeout did."""
        if ctx.method == "notifications/cancelled":
            said = ctx.params or {}
            starting, came_at = self._held.get(said.get("requestId"), (None, 0.0))
            waited_s = time.monotonic() - came_at
            timed_out = self._patience.is_timeout(requesting_client(ctx), said.get("reason"), waited_s)
            if starting is not None and not timed_out and self._settings.mcp.on_cancel != "detach":
                with contextlib.suppress(BackburnerError, MCPError):
                    await self._stop(starting)
        return await call_next(ctx)

    async def _stop(self, starting: asyncio.Task[_Call]) -> None:
        """Cancel a call: its task, or the request itself if the server does not answer with a task."""
        link = await self._client.connection.link()
        makes_tasks = "tasks" in link.capabilities or EXTENSION in link.capabilities.get("extensions", {})
        await asyncio.wait([starting], timeout=_TASK_ANSWER_S if makes_tasks else 0)
        if starting.cancel() or starting.cancelled():
            return
        call = starting.result()
        await call.handle.cancel()
        self._forget(call.handle.task_id)

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the host; one that cannot be asked declines."""
        host = self._host
        if host is None or not host.session.check_client_capability(_ELICITATION):
            return types.ElicitResult(action="cancel")
        if not isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="cancel")
        try:
            return await host.session.elicit_form(params.message, params.requested_schema, host.request_id)
        except MCPError as error:
            return types.ErrorData(code=INTERNAL_ERROR, message=str(error))


def _in_words_of_host(handler: Handler) -> Handler:
    """Add the result fields that 2026-07-28 requires."""

    async def answer(ctx: Context, params: _Params) -> dict[str, Any]:
        result = await handler(ctx, params)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return result
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}

    return answer


class _Progress:
    """Progress for the host: it grows, and is repeated while a call is held."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._sent = 0.0
        self.last: Update | None = None

    async def say(self, update: Update) -> None:
        self.last = update
        percent = update.progress.percent if update.progress else None
        if percent is not None and percent > self._sent:
            self._sent = percent
            await self._report()

    async def _report(self) -> None:
        progress = self.last.progress if self.last else None
        message = (self.last.message if self.last else "") or (progress.message if progress else None)
        await self._ctx.session.report_progress(self._sent, 100, message or "Working")

    @contextlib.asynccontextmanager
    async def beating(self, interval_s: float) -> AsyncIterator[None]:
        async def beat() -> None:
            for _ in itertools.count():
                await asyncio.sleep(interval_s)
                self._sent += 0.001
                await self._report()

        beats = asyncio.ensure_future(beat())
        try:
            yield
        finally:
            beats.cancel()


def _for_host(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool without its task support."""
    return {key: value for key, value in tool.items() if key != "execution"}


def _handed_out(handle: TaskHandle, last: Update | None, *, typed: bool) -> dict[str, Any]:
    progress = last.progress if last else None
    percent = f" It is {progress.percent:.0f}% done." if progress and progress.percent is not None else ""
    name = handle.tool_name or "The call"
    cursor = secrets.token_urlsafe(4)  # hosts end a loop of identical calls
    text = (
        f"{name} goes on in the background as task {handle.task_id}.{percent}"
        f" Call {WAIT_FOR_TASK} with task_id {handle.task_id} and cursor {cursor} to get its result."
    )
    told = progress.estimate if progress else None
    expected = told or ExpectedRuntime(DEFAULT_ESTIMATE_S, EstimateSource.DEFAULT)
    return wire.handle(handle.task_id, "running", text, typed=typed, cursor=cursor, **estimated(expected))


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}
