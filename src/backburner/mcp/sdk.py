"""Access to private parts of the MCP SDK and FastMCP, in one module."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from inspect import currentframe
from types import CodeType
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value
from pydantic import TypeAdapter

from ..errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from mcp.client import Client
    from mcp.server.connection import Connection
    from mcp.server.lowlevel.server import Server
    from mcp.server.mcpserver import MCPServer
    from mcp.server.session import ServerSession
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import ASGIApp


OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
#: Gets method and parameters of a notification; returns True to consume it.
OnNotification = Callable[[str, Mapping[str, Any]], bool]

_KNOWN_SDK = "mcp>=2.2,<3"
_KNOWN_FASTMCP = "fastmcp>=4,<5"


# -- required parts --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A private attribute of a class, and the feature that needs it."""

    module: str
    owner: str
    name: str
    needed_for: str

    def is_there(self) -> bool:
        """Return whether the class has it, or its code uses it on instances."""
        owner = getattr(import_module(self.module), self.owner)
        return hasattr(owner, self.name) or any(
            self.name in code.co_names
            for value in vars(owner).values()
            if isinstance(code := getattr(value, "__code__", None), CodeType)
        )


_PROVIDER = "fastmcp.server.providers.fastmcp_provider"
_SERVER_PARTS = (
    _Part("mcp.server.session", "ServerSession", "_connection", "notifications outside requests"),
    _Part("mcp.server.connection", "Connection", "state", "state of a client between its requests"),
    _Part("mcp.server.connection", "Connection", "exit_stack", "cleanup when a client disconnects"),
    _Part("mcp.server.mcpserver", "MCPServer", "_lowlevel_server", "tasks on an MCPServer"),
    _Part("mcp.server.mcpserver", "MCPServer", "_tool_manager", "finding out whether a tool is async"),
    _Part(
        "mcp.server.streamable_http_manager",
        "StreamableHTTPSessionManager",
        "_handle_request",
        "answers over HTTP without a stream",
    ),
)
_CLIENT_PARTS = (
    _Part("mcp.client.session", "ClientSession", "_stamp", "requests in the SDK's own name"),
    _Part("mcp.client.session", "ClientSession", "_dispatcher", "results that the SDK's models do not know"),
    _Part("mcp.client", "Client", "_build_session", "notifications as they came"),
    _Part("mcp.client.session", "ClientSession", "_intercept_notification", "notifications as they came"),
)
_FASTMCP_PARTS = (
    _Part("fastmcp", "FastMCP", "_mcp_server", "tasks on a FastMCP server"),
    _Part("fastmcp", "FastMCP", "_lifespan_manager", "FastMCP over stdio"),
    _Part(_PROVIDER, "FastMCPProviderTool", "_server", "finding out whether a tool is async"),
    _Part(_PROVIDER, "FastMCPProviderTool", "_original_name", "finding out whether a tool is async"),
)


@cache
def check_server_parts() -> None:
    """Raise ConfigError when this SDK release lacks a part that servers need."""
    _check("mcp", _KNOWN_SDK, _SERVER_PARTS)


@cache
def check_client_parts() -> None:
    """Raise ConfigError when this SDK release lacks a part that clients need."""
    _check("mcp", _KNOWN_SDK, _CLIENT_PARTS)


@cache
def check_fastmcp_parts() -> None:
    """Raise ConfigError for another major version of FastMCP, or a missing part."""
    if not _version_of("fastmcp").startswith("4."):
        raise _unknown_release("fastmcp", _KNOWN_FASTMCP, "it is of another generation")
    _check("fastmcp", _KNOWN_FASTMCP, _FASTMCP_PARTS)


def _check(package: str, known: str, parts: Sequence[_Part]) -> None:
    for part in parts:
        if not part.is_there():
            reason = f"{part.owner} has no {part.name} any more, needed for {part.needed_for}"
            raise _unknown_release(package, known, reason)


def _unknown_release(package: str, known: str, reason: str) -> ConfigError:
    found = _version_of(package)
    advice = f"install '{known}', or a newer Backburner"
    return ConfigError(setting="server", reason=f"{package} {found} is not known: {reason}; {advice}")


def _version_of(package: str) -> str:
    # The installed distribution may have another name.
    said = getattr(sys.modules.get(package), "__version__", None)
    return str(said or version(package))


# -- servers ---------------------------------------------------------------------------------------


def is_fastmcp(server: Any) -> bool:
    # A FastMCP server implies that the module is imported.
    module = sys.modules.get("fastmcp")
    return module is not None and isinstance(server, module.FastMCP)


def server_that_registers_extension() -> MCPServer[Any] | None:
    """Return the MCPServer whose constructor calls an extension: it does not pass itself."""
    from mcp.server.mcpserver import MCPServer

    frame = currentframe()
    while frame is not None:
        server = frame.f_locals.get("self")
        if isinstance(server, MCPServer):
            return server
        frame = frame.f_back
    return None


def server_in_mcpserver(server: MCPServer[Any]) -> Server[Any]:
    """Return the lowlevel server inside an MCPServer."""
    return server._lowlevel_server


def is_async_in_mcpserver(server: MCPServer[Any], name: str) -> bool:
    """Return whether the tool's function is an `async def`."""
    tool = server._tool_manager.get_tool(name)
    return tool is not None and tool.is_async


def server_in_fastmcp(server: Any) -> Server[Any]:
    """Return the lowlevel server inside a FastMCP server."""
    inner: Server[Any] = server._mcp_server
    return inner


async def function_in_fastmcp(server: Any, name: str) -> Callable[..., Any] | None:
    """Return the function of a FastMCP tool, also if it is mounted or transformed; None for no tool.

    A tool without a function, such as a proxy's, gives its `run`.
    """
    from fastmcp.server.providers.fastmcp_provider import FastMCPProviderTool
    from fastmcp.tools.tool_transform import TransformedTool

    tool = await server.get_tool(name)
    while True:
        if isinstance(tool, FastMCPProviderTool):
            tool = await tool._server.get_tool(tool._original_name)
        elif isinstance(tool, TransformedTool) and tool.fn is tool.forwarding_fn:
            tool = tool.parent_tool
        else:
            return None if tool is None else getattr(tool, "fn", tool.run)


def fastmcp_lifespan(server: Any) -> AbstractAsyncContextManager[Any]:
    """Return the lifespan of a FastMCP server that FastMCP does not serve itself."""
    lifespan: AbstractAsyncContextManager[Any] = server._lifespan_manager()
    return lifespan


def connection_of(session: ServerSession) -> Connection:
    """Return the client's connection: sessions are made for each request."""
    return session._connection


def stream_of(session: ServerSession) -> int:
    """Return an id shared by all messages of one client; over HTTP, 2026-07-28 has one per message."""
    return id(channel_of(session) or session._connection)


def channel_of(session: ServerSession) -> object | None:
    """Return the channel that a client's requests share; None for 2026-07-28 over HTTP, which has none."""
    connection = session._connection
    return connection.outbound if connection.has_standalone_channel else None


def without_stream(manager: StreamableHTTPSessionManager) -> ASGIApp:
    """Return the manager's app in JSON mode; the copy shares all sessions."""
    direct = copy.copy(manager)
    direct.json_response = True
    return direct._handle_request


# -- clients ---------------------------------------------------------------------------------------


def unlimited_events() -> dict[str, Any]:
    """Return options for `streamable_http_client`, which from 2.3 on limits events to a mebibyte."""
    from mcp.client.streamable_http import streamable_http_client

    option = "max_sse_event_size"
    return {option: None} if option in inspect.signature(streamable_http_client).parameters else {}


def intercept_notifications(client: Client, heard: OnNotification) -> Client:
    """Call `heard` for each raw notification, in the order of all messages; returns the client.

    The SDK's handlers drop what its models refuse, such as progress without a token, and may run late.
    """
    build = client._build_session

    async def build_session(exit_stack: AsyncExitStack) -> ClientSession:
        session = await build(exit_stack)
        intercept = session._intercept_notification

        def hear(method: str, params: Mapping[str, Any] | None) -> bool:
            return heard(method, params or {}) or intercept(method, params)

        session._intercept_notification = hear  # type: ignore[method-assign]
        return session

    client._build_session = build_session  # type: ignore[method-assign]
    return client


def progress_callback_of_call() -> OnProgress | None:
    """Return the `progress_callback` of the `Client.call_tool` that is resolving a claimed result.

    The SDK does not pass it on, so it is read from the caller's frame.
    """
    from mcp.client import Client

    frame = currentframe()
    while frame is not None and frame.f_code is not Client.call_tool.__code__:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("progress_callback")


async def raw_request(
    session: ClientSession,
    method: str,
    params: Mapping[str, Any],
    *,
    meta: Mapping[str, Any] | None = None,
    name: str | None = None,
    on_progress: OnProgress | None = None,
    request_id: str | None = None,
) -> dict[str, Any]:
    """Send a request and return its raw result. Raises MCPError.

    `send_request` validates results against core models, which refuse the `CreateTaskResult` of 2025-11-25.
    `name` goes into the routing header.
    """
    body: dict[str, Any] = {"method": method, "params": dict(params)}
    if meta:
        body["params"]["_meta"] = dict(meta)
    options: Any = {} if on_progress is None else {"on_progress": on_progress}
    if request_id is not None:
        options["request_id"] = request_id
    session._stamp(body, options)
    if name is not None:
        options.setdefault("headers", {})[MCP_NAME_HEADER] = encode_header_value(name)
    return dict(await session._dispatcher.send_raw_request(method, body["params"], options))


_INPUT_REQUEST: TypeAdapter[types.InputRequest] = TypeAdapter(types.InputRequest)


async def answer_by_callbacks(session: ClientSession, questions: dict[str, Any]) -> dict[str, Any]:
    """Answer requests by the session's callbacks, by key. Raises MCPError."""
    answers = {}
    for key, question in questions.items():
        request = _INPUT_REQUEST.validate_python(question)
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, request)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return answers
