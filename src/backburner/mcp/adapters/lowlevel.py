"""The lowlevel `Server` of the official SDK: all by its public names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.types import ASGIApp


def fits(server: Any) -> bool:
    return isinstance(server, Server)


def lowlevel_of(server: Server[Any]) -> Server[Any]:
    return server


def add_middleware(server: Server[Any], low: Server[Any], middleware: Any) -> None:
    low.middleware.append(middleware)


async def registered(server: Server[Any]) -> frozenset[str]:
    """The tools that code has registered: none, for there is nothing to register them with."""
    return frozenset()


async def is_async(server: Server[Any], name: str) -> bool:
    """Whether the tool is an `async def`: it is, for its handler is one."""
    return True


async def marked_slow(server: Server[Any]) -> dict[str, dict[str, Any]]:
    """The tools that the framework has a word for that says that they are slow: none."""
    return {}


def http_app(server: Server[Any], path: str, **options: Any) -> ASGIApp:
    """The server over Streamable HTTP, without checks of its own: `serving.http` makes them all."""
    return server.streamable_http_app(streamable_http_path=path, transport_security=no_security(), **options)


def extend_http_apps(server: Server[Any], add: Callable[[Starlette, bool], None]) -> None:
    """Do nothing: the app's author makes the HTTP app of such a server, and can serve `bb.http_app()`."""


def session_manager(server: Server[Any]) -> StreamableHTTPSessionManager | None:
    """What serves the app of `http_app`; None where that is made no sooner than it is served."""
    return server.session_manager


def no_security() -> Any:
    from mcp.server.transport_security import TransportSecuritySettings

    return TransportSecuritySettings(enable_dns_rebinding_protection=False)


async def run_stdio(server: Server[Any]) -> None:
    """Serve over stdio, a message on each line, until the client goes."""
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def living(server: Server[Any]) -> AbstractAsyncContextManager[None]:
    """What must be entered around a run of the server's lowlevel part: nothing here."""
    return nullcontext()
