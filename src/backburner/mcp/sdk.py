"""The one door to what the MCP SDK, FastMCP and Python do not promise.

Each private part that is used here is named in a list, and looked for when a server is attached or a
client is made: so a release that renames one is a clear error at once, not a silent loss later.
"""

from __future__ import annotations

import inspect
import platform
import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from inspect import currentframe
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value

from ..errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from mcp.client import Client
    from mcp.client.session import ClientSession
    from mcp.server.connection import Connection
    from mcp.server.lowlevel.server import Server
    from mcp.server.mcpserver import MCPServer
    from mcp.server.session import ServerSession
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
#: Gets the method and the parameters of a notification, and says whether nobody else need hear of it.
OnNotification = Callable[[str, Mapping[str, Any]], bool]

_KNOWN_SDK = "mcp>=2.2,<3"
_KNOWN_FASTMCP = "fastmcp>=4,<5"


# -- what is looked for ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A private name of a class, and what is lost without it."""

    module: str
    owner: str
    name: str
    needed_for: str

    def is_there(self) -> bool:
        """Whether the class has it, or code of the class uses it on its instances."""
        owner = getattr(import_module(self.module), self.owner)
        return hasattr(owner, self.name) or any(
            self.name in code.co_names
            for value in vars(owner).values()
            if isinstance(code := getattr(value, "__code__", None), CodeType)
        )


_PROVIDER = "fastmcp.server.providers.fastmcp_provider"
_SERVER_PARTS = (
    _Part("mcp.server.session", "ServerSession", "_connection", "news for clients outside their requests"),
    _Part("mcp.server.connection", "Connection", "state", "what is known of a client between its requests"),
    _Part("mcp.server.connection", "Connection", "exit_stack", "ending what is a client's when it goes"),
    _Part("mcp.server.mcpserver", "MCPServer", "_lowlevel_server", "tasks on an MCPServer"),
    _Part("mcp.server.mcpserver", "MCPServer", "_tool_manager", "the queue of tools that wait"),
    _Part(
        "mcp.server.streamable_http_manager",
        "StreamableHTTPSessionManager",
        "_lifespan_state",
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
    _Part("fastmcp", "FastMCP", "_lifespan_manager", "FastMCP over stdio with Content-Length headers"),
    _Part(_PROVIDER, "FastMCPProviderTool", "_server", "the queue of tools that wait"),
    _Part(_PROVIDER, "FastMCPProviderTool", "_original_name", "the queue of tools that wait"),
)


@cache
def check_server_parts() -> None:
    """Raises ConfigError when this release of the SDK, or of Python, lacks something that a server needs."""
    _check("mcp", _KNOWN_SDK, _SERVER_PARTS)
    check_pattern_parser()


@cache
def check_client_parts() -> None:
    """Raises ConfigError when this release of the SDK lacks something that a client needs."""
    _check("mcp", _KNOWN_SDK, _CLIENT_PARTS)


@cache
def check_fastmcp_parts() -> None:
    """Raises ConfigError for a FastMCP of another generation, or without what is needed of it."""
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
    # A package may be installed under more than one name, and says itself which release it is.
    said = getattr(sys.modules.get(package), "__version__", None)
    return str(said or version(package))


# -- servers ---------------------------------------------------------------------------------------


def is_fastmcp(server: Any) -> bool:
    # Whoever has a FastMCP server has imported it; nobody else pays for the import.
    module = sys.modules.get("fastmcp")
    return module is not None and isinstance(server, module.FastMCP)


def server_in_mcpserver(server: MCPServer[Any]) -> Server[Any]:
    """The lowlevel server that an MCPServer is made of."""
    return server._lowlevel_server


def is_async_in_mcpserver(server: MCPServer[Any], name: str) -> bool:
    """Whether the function of this tool is an `async def`."""
    tool = server._tool_manager.get_tool(name)
    return tool is not None and tool.is_async


def server_in_fastmcp(server: Any) -> Server[Any]:
    """The lowlevel server that a FastMCP server is made of."""
    inner: Server[Any] = server._mcp_server
    return inner


async def function_in_fastmcp(server: Any, name: str) -> Callable[..., Any] | None:
    """What a tool of a FastMCP server calls, also of one that is mounted or transformed.

    A tool that has no function of its own, such as one of a proxy, gives its `run`. None for no tool.
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
    """The lifespan of a FastMCP server that is not served by FastMCP itself."""
    lifespan: AbstractAsyncContextManager[Any] = server._lifespan_manager()
    return lifespan


def connection_of(session: ServerSession) -> Connection:
    """What stands for the client's connection: sessions are made anew for each request."""
    return session._connection


def stream_of(session: ServerSession) -> int:
    """What is the same for all messages of one client: of the later era each has a connection of its own."""
    return id(session._connection.outbound)


def lifespan_state_of(manager: StreamableHTTPSessionManager) -> Any:
    """What the lifespan of a server gave that is served over HTTP, for those who answer its requests."""
    return manager._lifespan_state


# -- clients ---------------------------------------------------------------------------------------


def events_of_any_size() -> dict[str, Any]:
    """For `streamable_http_client`: from 2.3 on it takes no event over a mebibyte unless it is told to."""
    from mcp.client.streamable_http import streamable_http_client

    option = "max_sse_event_size"
    return {option: None} if option in inspect.signature(streamable_http_client).parameters else {}


def hear_notifications(client: Client, heard: OnNotification) -> Client:
    """The same client; `heard` gets each notification as it came, in the order of all messages.

    Not by the SDK's own handlers: those get nothing that its models refuse, such as progress without a
    token, and may get what came before an answer after it.
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
    """The `progress_callback` of the `Client.call_tool` that resolves a claimed result just now.

    The SDK does not pass it to the resolver, which it calls itself: so it is found where it calls.
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
    """Send a request and give its result as it came. Raises MCPError.

    Not by `send_request`: that holds every result against the core protocol's models, and those of
    2025-11-25 refuse the `CreateTaskResult` of that very revision. `name` goes into the header by
    which routers know what the request is about.
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


# -- regular expressions ---------------------------------------------------------------------------

#: A pattern with the operations that patterns mostly have, and how its steps are written down.
_PATTERN = r"a[^b-d\d]{2}(e|fg)"
_STEPS = (
    "[(LITERAL, 97),"
    " (MAX_REPEAT, (2, 2, [(IN, [(NEGATE, None), (RANGE, (98, 100)), (CATEGORY, CATEGORY_DIGIT)])])),"
    " (SUBPATTERN, (1, 0, 0, [(BRANCH, (None, [[(LITERAL, 101)], [(LITERAL, 102), (LITERAL, 103)]]))]))]"
)


class ParsedPattern(NamedTuple):
    """A pattern as `re` reads it.

    `steps` are pairs of an operation, whose `str` is its name (`LITERAL`, `MAX_REPEAT`, …), and its
    argument; sequences of steps may stand within arguments. `shortest` is the least number of characters
    that a text has which matches.
    """

    steps: Any
    shortest: int


def parse_pattern(pattern: str) -> ParsedPattern:
    """By the parser of the standard library: it has no public name, but no other agrees with `re` in all.

    Raises `re.error`, RecursionError or OverflowError for what `re` does not compile.
    """
    parser: Any = import_module("re._parser")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        re.compile(pattern)
        steps = parser.parse(pattern)
    return ParsedPattern(steps, steps.getwidth()[0])


def check_pattern_parser() -> None:
    """Raises ConfigError when this Python's parser is gone, or gives other steps than those known here."""
    try:
        parsed = parse_pattern(_PATTERN)
    except Exception as error:
        raise _unknown_python(str(error)) from error
    if (repr(parsed.steps), parsed.shortest) != (_STEPS, 4):
        raise _unknown_python(f"`re._parser` gives other steps: {parsed}")


def _unknown_python(reason: str) -> ConfigError:
    return ConfigError(setting="server", reason=f"Python {platform.python_version()} is not known: {reason}")
