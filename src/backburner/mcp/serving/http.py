"""One ASGI app for one port: MCP at `/mcp`, downloads, metrics, and the checks in front of all of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...app import Backburner
from ..adapters.servers import framework_of
from .beside import AsEndpoint, Beside
from .roles import role_of
from .short_answers import answer_shortly

logger = logging.getLogger(__name__)

_UNREAD_BYTES = 1 << 20


def http_app(
    app: Backburner,
    *,
    host: str = "127.0.0.1",
    path: str = "/mcp",
    routes: Sequence[BaseRoute] = (),
    mcp_options: Mapping[str, Any] | None = None,
) -> Starlette:
    """MCP at `path`, `/api/v1`, `/artifacts/…`, `/healthz`, `/readyz`, `/metrics`, `routes`, and the
    dashboard at `/`, behind the checks of the settings.

    `mcp_options` go to the framework's own HTTP app, as `event_store` or `json_response`.

    Only requests for the names of `Hosts` are answered, and only scripts of such hosts may call. Where
    tokens are configured, `path` and `/metrics` want one.
    Raises ConfigError.
    """
    server = app.mcp_server()
    framework = framework_of(server)
    mcp: Any = framework.http_app(server, path, **(mcp_options or {}))
    if (manager := framework.session_manager(server)) is not None:
        answer_shortly(manager)
    beside = Beside(app, host)
    endpoint: ASGIApp = UnreadStreams(mcp)
    if beside.verifier is not None:
        endpoint = RequireAuthMiddleware(ForCallers(endpoint), required_scopes=[])
    life = _Life(mcp)
    return Starlette(
        routes=[
            Route(path, endpoint=AsEndpoint(life.started(endpoint))),
            *beside.open,
            *beside.api,
            *routes,
            *beside.dashboard,
        ],
        middleware=beside.middleware,
        lifespan=life.lifespan,
    )


class ForCallers:
    """Turns away a token whose role is only to look: a call of a tool makes a task."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = get_access_token()
        if token is None or role_of(token.scopes).operates:
            await self._app(scope, receive, send)
            return
        said = "This token may look, through the API, and not call tools\n"
        await PlainTextResponse(said, status_code=403)(scope, receive, send)


class _Life:
    """The lifespan of the MCP app. A parent that we are mounted in does not run it, so a request may, too."""

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
        """The same app, after the lifespan has begun."""

        async def begin_and_serve(scope: Scope, receive: Receive, send: Send) -> None:
            await self._begin()
            await app(scope, receive, send)

        return begin_and_serve

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._begun is None or self._begun.get_loop() is not loop:
            self._begun = loop.create_future()
            # In a task of its own, since a lifespan must end in the task in which it began.
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


class UnreadStreams:
    """Ends a session's event stream when its client does not read it.

    The SDK writes all messages of a session in turn, so a full stream would hold up the answers
    to the session's requests. Here a stream takes what it is given at once, up to a mebibyte;
    one that lies further behind is ended, and the client may open a new one.
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
        await asyncio.sleep(0)  # so that the relay gets its turn

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
