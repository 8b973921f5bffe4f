"""The ASGI app: MCP at `/mcp`, with direct JSON responses and limits on unread streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...app import Backburner
from ..adapters.servers import framework_of
from ..middleware import CALL, TaskMiddleware
from ..sdk import without_stream
from .auth import role_of
from .routes import AsgiEndpoint, SideRoutes

_LONGEST_BODY = 65_536
_MEDIA_TYPES = ("application/json", "text/event-stream")


def enable_direct_responses(manager: StreamableHTTPSessionManager) -> None:
    """Let the manager of a server with tasks answer in JSON where no stream is needed."""
    middleware = next(one for one in manager.app.middleware if isinstance(one, TaskMiddleware))
    manager.asgi_app = DirectResponses(manager, middleware)  # type: ignore[assignment]


class DirectResponses:
    """Answers requests that need no stream in the SDK's JSON mode, which saves two tasks per request."""

    def __init__(self, manager: StreamableHTTPSessionManager, middleware: TaskMiddleware) -> None:
        self._manager, self._middleware = manager, middleware
        self._app: ASGIApp = manager.asgi_app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_candidate(scope):
            await self._app(scope, receive, send)
            return
        read: list[Message] = []
        request = _parsed(await _body(receive, read))
        direct = request is not None and self._middleware.needs_no_stream(
            request["method"], request["params"]
        )
        app = without_stream(self._manager) if direct else self._app
        await app(scope, _replayed(read, receive), send)

    def _is_candidate(self, scope: Scope) -> bool:
        """Decide by the headers, before the body is read."""
        headers = Headers(scope=scope)
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        if scope["method"] != "POST" or version not in MODERN_PROTOCOL_VERSIONS:
            return False
        method, length = headers.get(MCP_METHOD_HEADER, ""), headers.get("content-length", "")
        if method == CALL:
            needs_none = self._middleware.is_slow(headers.get(MCP_NAME_HEADER))
        else:
            needs_none = self._middleware.needs_no_stream(method, {})
        takes_both = all(media_type in headers.get("accept", "") for media_type in _MEDIA_TYPES)
        is_small = length.isascii() and length.isdigit() and int(length) <= _LONGEST_BODY
        return needs_none and takes_both and is_small and self._is_silent()

    def _is_silent(self) -> bool:
        """Return whether no middleware of the author's could send notifications meanwhile."""
        modules = (type(one).__module__.partition(".")[0] for one in self._manager.app.middleware)
        return {"mcp", "backburner"}.issuperset(modules)


async def _body(receive: Receive, read: list[Message]) -> bytes:
    """Read the body of a request, and append its messages to `read`."""
    while True:
        message = await receive()
        read.append(message)
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(one.get("body", b"") for one in read)


def _replayed(read: list[Message], receive: Receive) -> Receive:
    messages = iter(read)

    async def receive_again() -> Message:
        message = next(messages, None)
        return await receive() if message is None else message

    return receive_again


def _parsed(body: bytes) -> dict[str, Any] | None:
    """Return a JSON-RPC request with parameters; None for anything else."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match request:
        case {"jsonrpc": "2.0", "id": int() | str(), "method": str(), "params": dict()}:
            return dict(request)
    return None


_UNREAD_BYTES = 1 << 20


def http_app(
    app: Backburner,
    *,
    host: str = "127.0.0.1",
    path: str = "/mcp",
    routes: Sequence[BaseRoute] = (),
    mcp_options: Mapping[str, Any] | None = None,
) -> Starlette:
    """Return the ASGI app with MCP at `path`, the REST API, downloads, health, metrics, `routes` and the
    dashboard.

    Requests must name one of `AllowedHosts`, also as their Origin. With tokens configured, `path` and
    `/metrics` require one. `mcp_options` go to the framework's own HTTP app, such as `event_store` or
    `json_response`. Raises ConfigError.
    """
    server = app.mcp_server()
    framework = framework_of(server)
    mcp: Any = framework.http_app(server, path, **(mcp_options or {}))
    if (manager := framework.session_manager(server)) is not None:
        enable_direct_responses(manager)
    side = SideRoutes(app, host)
    endpoint: ASGIApp = StalledStreams(mcp)
    if side.verifier is not None:
        endpoint = RequireAuthMiddleware(OperateRoleRequired(endpoint), required_scopes=[])
    life = _Life(mcp)
    return Starlette(
        routes=[
            Route(path, endpoint=AsgiEndpoint(life.started(endpoint))),
            *side.open,
            *side.api,
            *routes,
            *side.dashboard,
        ],
        middleware=side.middleware,
        lifespan=life.lifespan,
    )


class OperateRoleRequired:
    """Refuses a token with a read-only role: calling a tool creates a task."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = get_access_token()
        if token is None or role_of(token.scopes).operates:
            await self._app(scope, receive, send)
            return
        reason = "The role of this token allows reading through the API, but not calling tools\n"
        await PlainTextResponse(reason, status_code=403)(scope, receive, send)


class _Life:
    """Runs the lifespan of the MCP app. A parent app does not run it, so the first request may."""

    def __init__(self, mcp: Any) -> None:
        self._mcp = mcp
        self._living: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self._begin()
        try:
            yield
        finally:
            if self._living is not None:
                self._living.cancel()
                await asyncio.wait([self._living])

    def started(self, app: ASGIApp) -> ASGIApp:
        """Return the same app, which starts the lifespan before its first request."""

        async def begin_and_serve(scope: Scope, receive: Receive, send: Send) -> None:
            await self._begin()
            await app(scope, receive, send)

        return begin_and_serve

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._begun is None or self._begun.get_loop() is not loop:
            self._begun = loop.create_future()
            # In its own task: a lifespan must end in the task in which it began.
            self._living = loop.create_task(self._live(self._begun))
        await asyncio.shield(self._begun)

    async def _live(self, begun: asyncio.Future[None]) -> None:
        try:
            async with self._mcp.router.lifespan_context(self._mcp):
                begun.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:
            if begun.done():
                raise
            begun.set_exception(error)


# -- streams ----------------------------------------------------------------------------------------


class StalledStreams:
    """Ends a session's event stream when its client does not read it.

    The SDK writes all messages of a session in turn, so a full stream would block the answers to other
    requests. A stream that is more than a mebibyte behind is closed; the client may open a new one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        stream = _Stream(send)
        relaying = asyncio.ensure_future(stream.relay())
        try:
            await self._app(scope, receive, stream.take)
            await stream.finish(relaying)
        finally:
            relaying.cancel()


class _Stream:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: asyncio.Queue[Message] = asyncio.Queue()
        self._bytes = 0

    async def take(self, message: Message) -> None:
        self._bytes += len(message.get("body", b""))
        if self._bytes > _UNREAD_BYTES:
            raise OSError("the client does not read its stream")
        self._waiting.put_nowait(message)
        await asyncio.sleep(0)  # lets the relay run

    async def relay(self) -> None:
        while True:
            message = await self._waiting.get()
            await self._send(message)
            self._bytes -= len(message.get("body", b""))
            self._waiting.task_done()

    async def finish(self, relaying: asyncio.Future[None]) -> None:
        sent = asyncio.ensure_future(self._waiting.join())
        await asyncio.wait([sent, relaying], return_when=asyncio.FIRST_COMPLETED)
        sent.cancel()
