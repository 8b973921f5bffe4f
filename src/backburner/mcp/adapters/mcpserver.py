"""The official SDK's `MCPServer`."""

from __future__ import annotations

from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp

from .. import sdk
from . import lowlevel
from .lowlevel import add_middleware, living, no_security

__all__ = ["add_middleware", "fits", "http_app", "living", "lowlevel_of", "run_stdio"]


def fits(server: Any) -> bool:
    return isinstance(server, MCPServer)


def lowlevel_of(server: MCPServer[Any]) -> Server[Any]:
    return sdk.server_in_mcpserver(server)


def http_app(server: MCPServer[Any], path: str, **options: Any) -> ASGIApp:
    return server.streamable_http_app(streamable_http_path=path, transport_security=no_security(), **options)


async def run_stdio(server: MCPServer[Any]) -> None:
    await lowlevel.run_stdio(lowlevel_of(server))
