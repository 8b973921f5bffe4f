"""A server for hosts that know nothing of tasks, in front of one that makes tasks of its slow calls.

Each call is held, with progress, for as long as the host can be expected to wait; then the host
gets a handle, and a tool to wait on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INTERNAL_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict

from ..config import Settings
from ..errors import BackburnerError
from ..estimate import EstimateSource, ExpectedRuntime
from ..mcp.dialects.task_tools.wire import CANCEL_TASK, WAIT_FOR_TASK, estimated
from ..mcp.dialects.two_stage import wire as two_stage
from ..mcp.open_calls import NEW, as_joined
from ..mcp.patience import Patience
from ..mcp.request import request_meta
from ..mcp.timeouts import LATE_S, timer_ran_out
from ..mcp.updates import Update
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

Context = ServerRequestContext[Any, Any]


class _Params(types.RequestParams):
    model_config = ConfigDict(extra="allow")


Handler = Callable[[Context, _Params], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class _Call:
    """A call of the host, by its task. `key` is the same for the same call; None if it is no tool's."""

    handle: TaskHandle
    key: str | None = None
    typed: bool = False
    joined: bool = False

    def said(self, result: dict[str, Any]) -> dict[str, Any]:
        return as_joined(result, self.handle.task_id, typed=self.typed) if self.joined else result


class Bridge:
    """Serves a host over stdio; `target` is what BackburnerClient takes."""

    def __init__(self, target: Any, *, settings: Settings | None = None, **options: Any) -> None:
        self._settings = settings or Settings.load("bridge")
        self._patience = Patience(self._settings)
        # Under a name of its own: what is too large for most hosts is too large for this one.
        info = types.Implementation(name="bridge", version=VERSION)
        self._client = BackburnerClient(
            target, elicitation_callback=self._elicit, **{"client_info": info, **options}
        )
        self._host: Context | None = None
        self._held: dict[Any, _Call] = {}
        self._handles: dict[str, TaskHandle] = {}
        self._given_up: dict[str, tuple[_Call, float]] = {}

    async def run(self) -> None:
        """Connect to the server, then serve the host until it goes. Raises ConnectionLost."""
        async with self.serving() as server, stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Server[Any]]:
        """The server that the host talks to, for as long as the one behind it is connected."""
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
            yield server

    # -- what is passed on as it is

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
                    call = _Call(await self._handle(arguments))
                    wanted = arguments.get("timeout_s")
                    patience = min((s for s in (patience, wanted) if s is not None), default=None)
                else:
                    if typed and not self._patience.gives_up(ctx):
                        patience = None  # nothing but the result would do (docs/decisions/0020)
                    call = await self._started(ctx, name, arguments, progress, typed=typed)
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

    async def _started(
        self, ctx: Context, name: str, arguments: dict[str, Any], progress: _Progress, *, typed: bool
    ) -> _Call:
        """The call's task; that of the same call, if the host has given that up and not got its result."""
        key = json.dumps([name, arguments], sort_keys=True)
        if request_meta(ctx).get(NEW) is not True:
            known, until = self._given_up.pop(key, (None, 0.0))
            if known is not None and time.monotonic() < until:
                return replace(known, joined=True)
        handle = await self._client.start(name, arguments, on_update=progress.say)
        return _Call(handle, key, typed=typed)

    async def _hold(
        self, ctx: Context, call: _Call, patience: float | None, progress: _Progress
    ) -> dict[str, Any]:
        self._held[ctx.request_id] = call
        kept_s = 0.0
        try:
            async with asyncio.timeout(patience):
                result = await call.handle.result(progress.say)
        except TimeoutError:
            self._give_up(call)
            handed_out = _handed_out(call.handle, progress.last, self._settings, typed=call.typed)
            return call.said(two_stage.too_early(handed_out) if call.typed else handed_out)
        except asyncio.CancelledError:
            self._give_up(call)
            kept_s = LATE_S  # its host may have stopped it: that is said by itself
            raise
        finally:
            asyncio.get_running_loop().call_later(kept_s, self._held.pop, ctx.request_id, None)
        self._forget(call.handle.task_id)
        return call.said(result.model_dump(by_alias=True, mode="json", exclude_none=True))

    def _give_up(self, call: _Call) -> None:
        """The host waits no more, and the task goes on: for the same call, and for `wait_for_task`."""
        now = time.monotonic()
        self._handles[call.handle.task_id] = call.handle
        self._given_up = {key: known for key, known in self._given_up.items() if now < known[1]}
        if call.key is not None:
            self._given_up[call.key] = call, now + self._settings.mcp.join_window_s

    def _forget(self, task_id: str) -> None:
        """Its result was delivered, or nobody wants it."""
        self._handles.pop(task_id, None)
        for key in [key for key, (call, _) in self._given_up.items() if call.handle.task_id == task_id]:
            del self._given_up[key]

    async def _hear_cancelled(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A host that stops a held call cancels its task; one whose timer ran out, or that goes, does not."""
        if ctx.method == "notifications/cancelled":
            said = ctx.params or {}
            call = self._held.get(said.get("requestId"))
            detaches = timer_ran_out(said.get("reason")) or self._settings.mcp.on_cancel == "detach"
            if call is not None and not detaches:
                with contextlib.suppress(BackburnerError, MCPError):
                    await call.handle.cancel()
                self._forget(call.handle.task_id)
        return await call_next(ctx)

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the host, if it can be asked; one that cannot is taken to refuse."""
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
    """The newer era wants every result to say what it is; what is too much for the older is sieved out."""

    async def answer(ctx: Context, params: _Params) -> dict[str, Any]:
        result = await handler(ctx, params)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return result
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}

    return answer


class _Progress:
    """Progress for the host: it must grow, whatever the task says, and not cease while a call is held."""

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
    """A tool as the host may see it: without tasks."""
    return {key: value for key, value in tool.items() if key != "execution"}


def _handed_out(
    handle: TaskHandle, last: Update | None, settings: Settings, *, typed: bool
) -> dict[str, Any]:
    progress = last.progress if last else None
    percent = f" It is {progress.percent:.0f}% done." if progress and progress.percent is not None else ""
    name = handle.tool_name or "The call"
    text = (
        f"{name} goes on in the background as task {handle.task_id}.{percent}"
        f" Call {WAIT_FOR_TASK} with this task_id to get its result."
    )
    told = progress.estimate if progress else None
    expected = told or ExpectedRuntime(settings.default_estimate_s, EstimateSource.DEFAULT)
    return two_stage.handle(handle.task_id, "running", text, typed=typed, **estimated(expected))


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}
