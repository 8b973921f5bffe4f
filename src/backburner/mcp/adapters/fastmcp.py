"""FastMCP 4."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel.server import Server
from starlette.applications import Starlette
from starlette.types import ASGIApp

from ...errors import ConfigError
from ...tools import spec
from .. import sdk
from .pipeline import CURRENT_ROUND, recording_exceptions


def fits(server: Any) -> bool:
    return sdk.is_fastmcp(server)


def lowlevel_of(server: Any) -> Server[Any]:
    """Raises ConfigError for an unsupported release."""
    sdk.check_fastmcp_parts()
    return sdk.server_in_fastmcp(server)


def add_middleware(server: Any, low: Server[Any], middleware: Any) -> None:
    # Outermost: FastMCP's own middleware makes typed results, which would drop our keys.
    low.middleware.insert(0, middleware)
    server.add_middleware(_noting_what_tools_come_to())
    _stand_in_for_its_tasks(server)


async def registered(server: Any) -> frozenset[str]:
    return frozenset(tool.name for tool in await server.local_provider.list_tools())


async def is_async(server: Any, name: str) -> bool:
    """Return whether the tool's function is async; a tool without a function is by its `run`."""
    function = await sdk.function_in_fastmcp(server, name)
    return function is not None and spec.is_async(function)


async def marked_slow(server: Any) -> dict[str, dict[str, Any]]:
    """Return the tools with `task=True` or a TaskConfig, also of mounted servers."""
    from fastmcp.tools import Tool

    found = [component for component in await server.get_tasks() if isinstance(component, Tool)]
    return {tool.name: {"task": tool.task_config.mode} for tool in found}


def _stand_in_for_its_tasks(server: Any) -> None:
    """Register Backburner as FastMCP's task extension, without which such a server does not start.

    Raises ConfigError when another extension is registered: both would answer `tasks/get`.
    """
    from fastmcp.server.extensions import ServerExtension
    from fastmcp.utilities.tasks import TASKS_EXTENSION_ID, TaskConfig

    class RunByBackburner(ServerExtension):
        identifier = TASKS_EXTENSION_ID

    class AnyFunction(TaskConfig):
        def validate_function(self, fn: Any, name: str) -> None:
            """Accept sync functions, which runners support."""

    try:
        server.add_extension(RunByBackburner())
    except ValueError as error:
        reason = (
            "FastMCP's own tasks are switched on as well, and both would answer `tasks/get`. Remove "
            "mcp.add_extension(TasksExtension(...)): tools with task=True run as tasks of Backburner"
        )
        raise ConfigError(setting="server", reason=reason) from error
    register = server.tool

    def tool(*arguments: Any, task: Any = None, **options: Any) -> Any:
        if task:
            config = TaskConfig() if task is True else task
            task = AnyFunction(config.mode, config.poll_interval)
        return register(*arguments, task=task, **options)

    server.tool = tool


def _noting_what_tools_come_to() -> Any:
    from fastmcp.server.middleware import Middleware

    class NoteWhatToolsComeTo(Middleware):
        """Records exceptions and required input, which FastMCP converts to results and MCPErrors."""

        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            result = await recording_exceptions(call_next(context))
            under_way, required = CURRENT_ROUND.get(), getattr(result, "input_required", None)
            if under_way is not None:
                under_way.required = required
            return result

    return NoteWhatToolsComeTo()


def http_app(server: Any, path: str, **options: Any) -> ASGIApp:
    app: ASGIApp = type(server).http_app(server, path=path, host_origin_protection=False, **options)
    return app


def extend_http_apps(server: Any, add: Callable[[Starlette, bool], None]) -> None:
    """Let `add` extend the HTTP apps that the server makes, as for `fastmcp run --transport http`."""

    def extended(*arguments: Any, **options: Any) -> Starlette:
        made: Starlette = type(server).http_app(server, *arguments, **options)
        add(made, server.auth is not None)
        return made

    server.http_app = extended


def session_manager(server: Any) -> None:
    """Return None: FastMCP creates it with its lifespan."""


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[None]:
    """Enter what FastMCP itself enters around a run over stdio."""
    from fastmcp.server.context import reset_transport, set_transport

    token = set_transport("stdio")
    try:
        async with sdk.fastmcp_lifespan(server):
            yield
    finally:
        reset_transport(token)
