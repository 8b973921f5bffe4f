"""Installs the middleware on a server of any supported framework, and lists its tools."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from logging import LogRecord
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import serve_one
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.jsonrpc import INVALID_PARAMS
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from ...app import Backburner
from ...errors import ConfigError
from ...tools.targets import refuse_to_serve_while_loading
from ...version import VERSION
from ..dialects.tasks_2026.wire import EXTENSION
from ..middleware import IN_RUNNER, TaskMiddleware
from ..sdk import check_server_parts
from ..tools import ServerTools, Slow, SlowTools
from . import fastmcp, lowlevel, mcpserver
from .pipeline import Pipeline

_FRAMEWORKS = (lowlevel, mcpserver, fastmcp)


def framework_of(server: Any) -> Any:
    """Return the adapter module for a server. Raises ConfigError for other objects."""
    for framework in _FRAMEWORKS:
        if framework.fits(server):
            return framework
    reason = f"{type(server).__name__} is not a Server or MCPServer of the mcp SDK, nor a FastMCP 4"
    raise ConfigError(setting="server", reason=reason)


def new_server(app: Backburner) -> Server[Any]:
    """Return a server that offers only the app's tools."""
    server: Server[Any] = Server(app.name, version=VERSION)
    install(app, server)
    return server


def install(app: Backburner, server: Any, slow: Slow = ()) -> None:
    """Make a server serve tasks; its fast tools and other features stay unchanged.

    Raises ConfigError, also for an unsupported framework release, and NoTarget for an app that runners cannot
    import.
    """
    check_server_parts()
    framework = framework_of(server)
    low: Server[Any] = framework.lowlevel_of(server)
    if any(isinstance(one, TaskMiddleware) for one in low.middleware):
        reason = f"{low.name} is attached already; name all its slow tools in one Backburner.attach"
        raise ConfigError(setting="server", reason=reason)
    app.check_target()
    pipeline = Pipeline(low)
    app.tools.lifespan = pipeline.lifespan
    app.tools.is_private_record = _is_of_framework
    added_tools = ServerTools(
        pipeline.tool,
        partial(framework.registered, server),
        partial(framework.marked_slow, server),
        partial(framework.is_async, server),
    )
    slow_tools = SlowTools(app, added_tools, slow)
    middleware = TaskMiddleware(app, slow_tools, lambda: low.server_info_stamp)
    framework.add_middleware(server, low, middleware)
    low.extensions[EXTENSION] = {}
    for method, params_type, handler in middleware.methods():
        low.add_request_handler(method, params_type, handler)
    _fill_in(low)
    _look_up_schemas(low, middleware, slow_tools)
    low.lifespan = _resuming(app, slow_tools, low.lifespan)
    framework.extend_http_apps(server, app.extend_http_app)
    app.server = server


def _is_of_framework(record: LogRecord) -> bool:
    """Return whether framework code wrote a log record: it does not send these to clients."""
    packages = (sys.modules.get(name) for name in ("mcp", "fastmcp"))
    folders = (folder for package in packages if package is not None for folder in package.__path__)
    return any(record.pathname.startswith(f"{folder}{os.sep}") for folder in folders)


_Lifespan = Callable[[Server[Any]], AbstractAsyncContextManager[Any]]


def _resuming(app: Backburner, slow_tools: SlowTools, lifespan: _Lifespan) -> _Lifespan:
    """Wrap a lifespan to resume waiting tasks when it begins."""

    @asynccontextmanager
    async def resume_and_live(server: Server[Any]) -> AsyncIterator[Any]:
        refuse_to_serve_while_loading()
        if not IN_RUNNER.get():
            app.say_where()
            app.resume()
        async with lifespan(server) as state:
            if not IN_RUNNER.get():
                await slow_tools.begin()
            yield state

    return resume_and_live


def _fill_in(low: Server[Any]) -> None:
    """Add handlers for methods that dialects extend and the server lacks."""

    async def no_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    async def no_such_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")

    async def no_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def no_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def no_such_resource(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": str(params.uri)})

    page = types.PaginatedRequestParams
    for method, params_type, handler in (
        ("tools/list", page, no_tools),
        ("tools/call", types.CallToolRequestParams, no_such_tool),
        ("resources/list", page, no_resources),
        ("resources/templates/list", page, no_templates),
        ("resources/read", types.ReadResourceRequestParams, no_such_resource),
        (
            "subscriptions/listen",
            types.SubscriptionsListenRequestParams,
            ListenHandler(InMemorySubscriptionBus()),
        ),
    ):
        if low.get_request_handler(method) is None:
            low.add_request_handler(method, params_type, handler)  # type: ignore[arg-type]


def _look_up_schemas(low: Server[Any], middleware: TaskMiddleware, slow_tools: SlowTools) -> None:
    """Provide input schemas, or else the SDK lists all tools before each 2026-07-28 call over HTTP."""
    before = getattr(low, "get_tool_input_schema", None)  # missing in older SDKs

    def look_up(name: str) -> Mapping[str, Any] | None:
        own = middleware.added_tools.get(name)
        if own is not None:
            return own.input_schema
        found = None if before is None else before(name)
        return slow_tools.input_schema(name) if found is None else found

    low.get_tool_input_schema = look_up


_LOOKER = {"name": "backburner", "version": "1"}


async def discover_tools(app: Backburner) -> None:
    """List the server's tools, so that slow ones are known. Raises what the server raises."""
    low = framework_of(app.server).lowlevel_of(app.server)
    nobody = _Nobody()
    params: dict[str, Any] | None = {}
    while params is not None:
        connection = Connection.from_envelope(LATEST_HANDSHAKE_VERSION, _LOOKER, {}, outbound=nobody)
        page = await serve_one(low, nobody, "tools/list", params, connection=connection, lifespan_state=None)
        params = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None


class _Nobody:
    """The SDK's DispatchContext without a client."""

    def __init__(self) -> None:
        self.transport = TransportContext(kind="backburner", can_send_request=False)
        self.can_send_request = False
        self.request_id: str | int | None = 1
        self.message_metadata: MessageMetadata = None
        self.cancel_requested = anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None: ...

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None: ...
