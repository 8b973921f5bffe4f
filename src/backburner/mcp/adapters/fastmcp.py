"""FastMCP 4."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel.server import Server
from starlette.applications import Starlette
from starlette.types import ASGIApp

from ... import tools
from ...errors import ConfigError
from .. import sdk
from .tool_round import ROUND, noting_what_is_raised


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
    _stand_in_for_its_tasks(server)


async def registered(server: Any) -> frozenset[str]:
    return frozenset(tool.name for tool in await server.local_provider.list_tools())


async def is_async(server: Any, name: str) -> bool:
    """Of a tool without a function of its own, such as one of a proxy, it is `run` that waits."""
    function = await sdk.function_in_fastmcp(server, name)
    return function is not None and tools.is_async(function)


async def marked_slow(server: Any) -> dict[str, dict[str, Any]]:
    """The tools with `task=True` or a TaskConfig, those of mounted servers too."""
    from fastmcp.tools import Tool

    found = [component for component in await server.get_tasks() if isinstance(component, Tool)]
    return {tool.name: {"task": tool.task_config.mode} for tool in found}


def _stand_in_for_its_tasks(server: Any) -> None:
    """FastMCP starts no server with tools for tasks and nobody to run them; here Backburner does.

    Raises ConfigError when somebody else does already: each would answer for the tasks of the other.
    """
    from fastmcp.server.extensions import ServerExtension
    from fastmcp.utilities.tasks import TASKS_EXTENSION_ID, TaskConfig

    class RunByBackburner(ServerExtension):
        identifier = TASKS_EXTENSION_ID

    class AnyFunction(TaskConfig):
        def validate_function(self, fn: Any, name: str) -> None:
            """A runner takes sync functions, too."""

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
        """FastMCP turns what a tool raises into a result, and input that is required into an MCPError.

        In a runner the task is to have both whole.
        """

        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            result = await noting_what_is_raised(call_next(context))
            under_way, required = ROUND.get(), getattr(result, "input_required", None)
            if under_way is not None:
                under_way.required = required
            return result

    return NoteWhatToolsComeTo()


def http_app(server: Any, path: str, **options: Any) -> ASGIApp:
    app: ASGIApp = type(server).http_app(server, path=path, host_origin_protection=False, **options)
    return app


def extend_http_apps(server: Any, add: Callable[[Starlette, bool], None]) -> None:
    """Have `add` extend the HTTP apps that the server makes itself, as for `fastmcp run --transport http`."""

    def extended(*arguments: Any, **options: Any) -> Starlette:
        made: Starlette = type(server).http_app(server, *arguments, **options)
        add(made, server.auth is not None)
        return made

    server.http_app = extended


def session_manager(server: Any) -> None:
    """FastMCP makes it when its lifespan begins, so its requests are answered as the SDK does."""


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
