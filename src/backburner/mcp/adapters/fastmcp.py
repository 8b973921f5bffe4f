"""FastMCP 4."""

from __future__ import annotations

from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from starlette.types import ASGIApp

from .. import sdk
from ..serving.framing import Framing
from . import lowlevel
from .pipeline import SWALLOWED


def fits(server: Any) -> bool:
    return sdk.is_fastmcp(server)


def lowlevel_of(server: Any) -> Server[Any]:
    """Raises ConfigError for a release that is not known."""
    sdk.check_fastmcp_parts()
    return sdk.server_in_fastmcp(server)


def add_middleware(server: Any, low: Server[Any], middleware: Any) -> None:
    # Outermost: FastMCP's own middleware makes typed models of results, which would lose our keys.
    low.middleware.insert(0, middleware)
    server.add_middleware(_keep_protocol_errors())


def _keep_protocol_errors() -> Any:
    from fastmcp.server.middleware import Middleware

    class KeepProtocolErrors(Middleware):
        """FastMCP turns an MCPError of a tool into a tool error; in a runner the task is to have it whole."""

        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            try:
                return await call_next(context)
            except Exception as error:
                swallowed = SWALLOWED.get()
                if swallowed is not None and isinstance(error.__cause__, MCPError):
                    swallowed.append(error.__cause__)
                raise

    return KeepProtocolErrors()


def http_app(server: Any, path: str, **options: Any) -> ASGIApp:
    app: ASGIApp = server.http_app(path=path, host_origin_protection=False, **options)
    return app


async def run_stdio(server: Any, framing: Framing = "newline") -> None:
    if framing == "newline":
        await server.run_stdio_async(show_banner=False)
        return
    # FastMCP takes no streams of others, so this is what its `run_stdio_async` does.
    from fastmcp.server.context import reset_transport, set_transport

    token = set_transport("stdio")
    try:
        async with sdk.fastmcp_lifespan(server):
            await lowlevel.run_stdio(lowlevel_of(server), framing)
    finally:
        reset_transport(token)
