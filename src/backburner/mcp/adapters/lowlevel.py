"""The lowlevel `Server` of the official SDK, through its public API."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from mcp.server.lowlevel.server import Server
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
    """Return no names: a lowlevel server has no registry."""
    return frozenset()


async def is_async(server: Server[Any], name: str) -> bool:
    """Return True: its handler is async."""
    return True


async def marked_slow(server: Server[Any]) -> dict[str, dict[str, Any]]:
    """Return nothing: the framework cannot mark tools as slow."""
    return {}


def http_app(server: Server[Any], path: str, **options: Any) -> ASGIApp:
    """Return the Streamable HTTP app without its own security checks, which `transport.http` makes."""
    return server.streamable_http_app(streamable_http_path=path, transport_security=no_security(), **options)


def extend_http_apps(server: Server[Any], add: Callable[[Starlette, bool], None]) -> None:
    """Do nothing: the author makes the HTTP app, and can serve `bb.http_app()`."""


def session_manager(server: Server[Any]) -> StreamableHTTPSessionManager | None:
    """Return the session manager of `http_app`; None if it is created later."""
    return server.session_manager


def no_security() -> Any:
    from mcp.server.transport_security import TransportSecuritySettings

    return TransportSecuritySettings(enable_dns_rebinding_protection=False)


def lifespan(server: Server[Any]) -> AbstractAsyncContextManager[None]:
    """Return nothing to enter around a run of the lowlevel server."""
    return nullcontext()
