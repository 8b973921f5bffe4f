"""FastMCP 4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import InputRequiredResult
from starlette.types import ASGIApp

from .. import sdk
from .tool_round import ROUND


def fits(server: Any) -> bool:
    return sdk.is_fastmcp(server)


def lowlevel_of(server: Any) -> Server[Any]:
    """Raises ConfigError for a release that is not known."""
    sdk.check_fastmcp_parts()
    return sdk.server_in_fastmcp(server)


def add_middleware(server: Any, low: Server[Any], middleware: Any) -> None:
    # Outermost: FastMCP's own middleware makes typed models of results, which would lose our keys.
    low.middleware.insert(0, middleware)
    server.add_middleware(_noting_what_tools_come_to())


def _noting_what_tools_come_to() -> Any:
    from fastmcp.server.middleware import Middleware

    class NoteWhatToolsComeTo(Middleware):
        """FastMCP turns an MCPError of a tool into a tool error, and input that is required into an MCPError.

        In a runner the task is to have both whole. Of tools that call others, the outermost ends last.
        """

        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            under_way, came_to = ROUND.get(), None
            try:
                result = await call_next(context)
                came_to = getattr(result, "input_required", None)
                return result
            except Exception as error:
                came_to = error.__cause__
                raise
            finally:
                if under_way is not None:
                    known = isinstance(came_to, MCPError | InputRequiredResult)
                    under_way.came_to = came_to if known else None

    return NoteWhatToolsComeTo()


def http_app(server: Any, path: str, **options: Any) -> ASGIApp:
    app: ASGIApp = server.http_app(path=path, host_origin_protection=False, **options)
    return app


async def run_stdio(server: Any) -> None:
    await server.run_stdio_async(show_banner=False)


@asynccontextmanager
async def living(server: Any) -> AsyncIterator[None]:
    """What FastMCP itself does around a run over stdio: it takes no streams of others."""
    from fastmcp.server.context import reset_transport, set_transport

    token = set_transport("stdio")
    try:
        async with sdk.fastmcp_lifespan(server):
            yield
    finally:
        reset_transport(token)
