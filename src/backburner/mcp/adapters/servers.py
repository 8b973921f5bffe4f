"""Installing the surfaces on a server, whatever framework it is of.

Every framework has a lowlevel `Server` of the official SDK inside; all the rest is done there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS

from ... import __version__
from ...app import Backburner
from ...errors import ConfigError
from ...tools import ToolSpec, tool_options
from ..middleware import Surfaces
from ..request import TASKS_EXTENSION
from . import fastmcp, lowlevel, mcpserver
from .pipeline import Pipeline

#: Which tools are slow: patterns of names, or patterns with the options that `@bb.tool` takes.
Slow = Sequence[str] | Mapping[str, Mapping[str, Any]]

_FRAMEWORKS = (lowlevel, mcpserver, fastmcp)


def framework_of(server: Any) -> Any:
    """The adapter module for a server. Raises ConfigError for what is no server that we know."""
    for framework in _FRAMEWORKS:
        if framework.fits(server):
            return framework
    reason = f"{type(server).__name__} is not a Server or MCPServer of the mcp SDK, nor a FastMCP 4"
    raise ConfigError(setting="server", reason=reason)


class Attachment:
    """The slow tools of an app on one server: functions of its own, and tools that the server has itself."""

    def __init__(self, app: Backburner, server: Server[Any], slow: Slow = ()) -> None:
        self._app = app
        self._patterns = dict(slow) if isinstance(slow, Mapping) else {pattern: {} for pattern in slow}
        self._pipeline = Pipeline(server)
        self._learned = False
        # Asked for each call of each tool, so also of the fast ones.
        self._options = lru_cache(maxsize=4096)(self._match)
        self.schemas: dict[str, Mapping[str, Any]] = {}
        for pattern, options in self._patterns.items():
            tool_options(pattern, **options)  # so that a mistake shows at once
        app.tools.find_missing = self._find_missing

    def find(self, name: Any) -> ToolSpec | None:
        return self._app.tools.get(name) if isinstance(name, str) and name in self._app.tools else None

    def may_be(self, name: Any) -> bool:
        return isinstance(name, str) and self._options(name) is not None

    def learn(self, listed: list[dict[str, Any]]) -> None:
        self._learned = True
        for tool in listed:
            name = tool["name"]
            self.schemas[name] = tool["inputSchema"]
            if name not in self._app.tools and self.may_be(name):
                self._app.add_tool(
                    self._spec(
                        name,
                        description=tool.get("description") or "",
                        input_schema=tool["inputSchema"],
                        output_schema=tool.get("outputSchema"),
                    )
                )

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        spec = self.find(name)
        return self.schemas.get(name) if spec is None else spec.input_schema

    def _match(self, name: str) -> Mapping[str, Any] | None:
        for pattern, options in self._patterns.items():
            if fnmatchcase(name, pattern):
                return options
        return None

    def _find_missing(self, name: str) -> ToolSpec | None:
        """A runner runs a tool by its name alone. Where the server's tools are known, a miss is a miss."""
        return self._spec(name) if self.may_be(name) and not self._learned else None

    def _spec(self, name: str, **described: Any) -> ToolSpec:
        options = tool_options(name, **(self._options(name) or {}))
        run = self._pipeline.tool(name)
        return ToolSpec(name, run, result_kind="call_tool_result", **{**described, **options})


def new_server(app: Backburner) -> Server[Any]:
    """A server that offers the app's tools and nothing else."""
    server: Server[Any] = Server(app.name, version=__version__)
    install(app, server)
    return server


def install(app: Backburner, server: Any, slow: Slow = ()) -> Surfaces:
    """Make a server serve tasks. Its other tools, and all else it does, stay as they are."""
    framework = framework_of(server)
    low: Server[Any] = framework.lowlevel_of(server)
    attachment = Attachment(app, low, slow)
    surfaces = Surfaces(app, attachment)
    framework.add_middleware(server, low, surfaces)
    low.extensions[TASKS_EXTENSION] = {}
    for method, params_type, handler in surfaces.methods():
        low.add_request_handler(method, params_type, handler)
    _fill_in(low)
    _look_up_schemas(low, surfaces, attachment)
    app.server = server
    return surfaces


def _fill_in(low: Server[Any]) -> None:
    """Bind what the server does not offer itself and the surfaces add to: lists, resources, listening."""

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


def _look_up_schemas(low: Server[Any], surfaces: Surfaces, attachment: Attachment) -> None:
    """Without this the SDK lists all tools before each call over HTTP at 2026-07-28."""
    before = low.get_tool_input_schema

    def look_up(name: str) -> Mapping[str, Any] | None:
        task_tool = surfaces.task_tools.by_name.get(name)
        if task_tool is not None:
            return task_tool.input_schema
        found = None if before is None else before(name)
        return attachment.input_schema(name) if found is None else found

    low.get_tool_input_schema = look_up
