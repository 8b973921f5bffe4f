"""The official SDK's `MCPServer`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.types import ASGIApp

from .. import sdk
from . import lowlevel
from .pipeline import recording_exceptions

lifespan, marked_slow = lowlevel.lifespan, lowlevel.marked_slow


def fits(server: Any) -> bool:
    return isinstance(server, MCPServer)


def lowlevel_of(server: MCPServer[Any]) -> Server[Any]:
    return sdk.server_in_mcpserver(server)


def add_middleware(server: MCPServer[Any], low: Server[Any], middleware: Any) -> None:
    lowlevel.add_middleware(low, low, middleware)
    call_tool = server.call_tool

    async def call_and_note(*arguments: Any, **options: Any) -> Any:
        return await recording_exceptions(call_tool(*arguments, **options))

    server.call_tool = call_and_note  # type: ignore[method-assign]


async def registered(server: MCPServer[Any]) -> frozenset[str]:
    return frozenset(tool.name for tool in await server.list_tools())


async def is_async(server: MCPServer[Any], name: str) -> bool:
    return sdk.is_async_in_mcpserver(server, name)


def http_app(server: MCPServer[Any], path: str, **options: Any) -> ASGIApp:
    make = partial(type(server).streamable_http_app, server)
    return make(streamable_http_path=path, transport_security=lowlevel.no_security(), **options)


def extend_http_apps(server: MCPServer[Any], add: Callable[[Starlette, bool], None]) -> None:
    """Let `add` extend the HTTP apps that the server makes, as for `mcp run -t streamable-http`."""

    def extended(**options: Any) -> Starlette:
        made = type(server).streamable_http_app(server, **options)
        add(made, server.settings.auth is not None)
        return made

    server.streamable_http_app = extended  # type: ignore[method-assign]


def session_manager(server: MCPServer[Any]) -> StreamableHTTPSessionManager | None:
    return server.session_manager
