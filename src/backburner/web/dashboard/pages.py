"""Dashboard pages: access, sign-in, rendering, and live updates shared by all viewers of a page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from mcp.server.auth.provider import TokenVerifier
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from ...app import Backburner
from ...errors import BackburnerError, TaskNotFound
from ...service.monitoring import listen_async
from ...store.protocol import ANYTHING
from ...version import VERSION
from ..access import OWN_SITES, Access, Blocking, NoSuchPath, TokenRequired, access_of_request, status_of
from ..streams import LIFE_S, OPEN, stream
from ..task_records import TaskRecords
from .rendering import environment
from .sessions import MAX_TOKEN_CHARS, Sessions

logger = logging.getLogger(__name__)

Render = Callable[[], Awaitable[str]]

#: Pause after rendering a page, and as a multiple of the rendering time for each open page: all pages
#: together take at most a twentieth of a core. A single slow rendering does not count.
_PAUSE_S, _PAUSE_FACTOR = 1.0, 20
_MAX_PAUSE_S = 30.0
#: Longest time between two renderings: a worker that dies causes no notification.
_REFRESH_S = 10.0


# -- live updates ----------------------------------------------------------------------------------


@dataclass(eq=False)
class _LivePage:
    render: Render
    frame: bytes = b""
    version: int = 0
    viewers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    rendered: asyncio.Condition = field(default_factory=asyncio.Condition)
    updates: asyncio.Task[None] | None = None


class LiveUpdates:
    """Renders open pages again after changes of the store, once for all viewers of a page."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._pages: dict[Hashable, _LivePage] = {}
        self._listener: asyncio.Task[None] | None = None

    async def follow(self, key: Hashable, render: Render) -> AsyncGenerator[bytes, None]:
        """Yield a page now and after each change. Slow viewers skip versions."""
        async with self._viewed(key, render) as page:
            seen = 0
            while True:
                async with page.rendered:
                    await page.rendered.wait_for(lambda: page.version > seen)  # noqa: B023
                    seen = page.version
                yield page.frame

    @contextlib.asynccontextmanager
    async def _viewed(self, key: Hashable, render: Render) -> AsyncIterator[_LivePage]:
        page = self._pages.setdefault(key, _LivePage(render))
        page.viewers += 1
        try:
            if self._listener is None or self._listener.done():
                self._listener = asyncio.ensure_future(self._listen())
            if page.updates is None or page.updates.done():
                page.updates = asyncio.ensure_future(self._update(page))
            yield page
        finally:
            page.viewers -= 1
            if not page.viewers:
                self._pages.pop(key, None)
                if page.updates is not None:
                    page.updates.cancel()
            if not self._pages and self._listener is not None:
                self._listener.cancel()
                self._listener = None

    async def _update(self, page: _LivePage) -> None:
        took_s = 0.0
        while True:
            page.changed.clear()
            began = time.monotonic()
            frame = await _rendered(page)
            if frame != page.frame:
                async with page.rendered:
                    page.frame, page.version = frame, page.version + 1
                    page.rendered.notify_all()
            took_s, before_s = time.monotonic() - began, took_s
            pause_s = _PAUSE_FACTOR * min(took_s, before_s) * len(self._pages)
            await asyncio.sleep(min(max(_PAUSE_S, pause_s), _MAX_PAUSE_S))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(page.changed.wait(), _REFRESH_S)

    async def _listen(self) -> None:
        changed, stop = await listen_async(self._app.service, ANYTHING)
        try:
            while True:
                await changed.wait()
                changed.clear()
                for page in self._pages.values():
                    page.changed.set()
        finally:
            stop()


async def _rendered(page: _LivePage) -> bytes:
    """Render a page; return its last version while the store is unavailable."""
    try:
        return _frame("page", await page.render())
    except TaskNotFound as error:
        return _frame("gone", str(error))
    except BackburnerError:
        return page.frame
    except Exception:
        logger.exception("Rendering a dashboard page failed")
        return page.frame


def _frame(name: str, text: str) -> bytes:
    return f"event: {name}\ndata: {json.dumps(text)}\n\n".encode()


# -- pages -----------------------------------------------------------------------------------------

#: No page loads foreign content, runs inline scripts, or appears in a frame.
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LIVE = "live"
_FAILED = "This page cannot be shown. The server's log has the reason."
_MAX_FORM_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class PageRequest:
    access: Access
    path: Mapping[str, str]
    query: QueryParams


class Redirect(Exception):
    """Send the browser to a path of this server, or to a link of the artifact storage."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


#: Returns the values of a template. Blocks; raises the errors of TaskService, and Redirect.
View = Callable[[PageRequest], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """`section` is the page's menu entry."""

    path: str
    template: str
    section: str
    view: View


class Dashboard:
    """Services shared by all pages of a server."""

    def __init__(self, app: Backburner, sessions: Sessions, *, tokens: bool) -> None:
        self.app, self.sessions, self.tokens = app, sessions, tokens
        self.records = TaskRecords(app)
        self.blocking, self.live = Blocking(app), LiveUpdates(app)

    async def access(self, request: Request) -> Access:
        """Raises TokenRequired for a browser that is not signed in."""
        if not self.tokens and not await self.blocking.run(self.sessions.is_local, request):
            raise TokenRequired
        return access_of_request(tokens=self.tokens)

    def workers(self, access: Access) -> list[dict[str, Any]]:
        return self.app.operator.workers(access.owner, hosts=access.is_operator)

    def html(self, template: str, request: Request, values: Mapping[str, Any]) -> str:
        common = {
            "root": request.scope.get("root_path", ""),
            "app_name": self.app.name,
            "version": VERSION,
            "tokens": self.tokens,
            "access": None,
            "error": None,
            "section": "",
            "layout": "base.html",
        }
        return environment().get_template(template).render({**common, **values})

    def response(self, template: str, request: Request, status: int = 200, **values: Any) -> Response:
        return Response(self.html(template, request, values), status, HEADERS, "text/html")

    def to_sign_in(self, request: Request) -> Response:
        """Redirect to the sign-in page, which returns to the requested page."""
        root = _root(request)
        wanted = request.url.path.removeprefix(root) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{root}/dashboard/sign-in?{urlencode({'next': wanted})}", 303, HEADERS)


class PageEndpoint:
    """A page as an ASGI app: HTML, or with `live` in the query a stream of updates."""

    def __init__(self, dashboard: Dashboard, page: Page) -> None:
        self._dashboard, self._page = dashboard, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        access: Access | None = None

        def failed(status: int, error: Any) -> Response:
            values = {"error": error, "section": self._page.section, "access": access}
            return self._dashboard.response("error.html", request, status, **values)

        try:
            access = await self._dashboard.access(request)
            response = await self._respond(request, access)
        except TokenRequired:
            response = self._dashboard.to_sign_in(request)
        except Redirect as redirect:
            root = _root(request) if redirect.address.startswith("/") else ""
            response = RedirectResponse(root + redirect.address, 303, HEADERS)
        except BackburnerError as error:
            response = failed(status_of(error), error)
        except Exception:
            logger.exception("Rendering the page %s failed", request.url.path)
            response = failed(500, _FAILED)
        await response(scope, receive, send)

    async def _respond(self, request: Request, access: Access) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(status_code=405, headers={**HEADERS, "Allow": "GET, HEAD"})
        query = QueryParams([one for one in request.query_params.multi_items() if one[0] != _LIVE])
        wanted = PageRequest(access, request.path_params, query)
        if _LIVE not in request.query_params:
            return Response(await self._html(wanted, request, "base.html"), 200, HEADERS, "text/html")

        async def render() -> str:
            try:
                return await self._html(wanted, request, "live.html")
            except Redirect:
                raise NoSuchPath from None

        key = (request.url.path, str(query), access.principal, access.role)
        return stream(self._updates(key, render))

    async def _html(self, wanted: PageRequest, request: Request, layout: str) -> str:
        def render() -> str:
            values = {"access": wanted.access, "section": self._page.section, "layout": layout}
            return self._dashboard.html(self._page.template, request, values | self._page.view(wanted))

        return await self._dashboard.blocking.run(render)

    async def _updates(self, key: Hashable, render: Render) -> AsyncIterator[bytes]:
        yield OPEN
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIFE_S):
                async with contextlib.aclosing(self._dashboard.live.follow(key, render)) as frames:
                    async for frame in frames:
                        yield frame


# -- sign-in ---------------------------------------------------------------------------------------


class SignIn:
    """Sign-in by a token, or by a one-time link if the server requires no tokens; and sign-out."""

    def __init__(self, dashboard: Dashboard, verifier: TokenVerifier | None) -> None:
        self._dashboard, self._sessions, self._verifier = dashboard, dashboard.sessions, verifier

    async def open(self, request: Request) -> Response:
        """Use a one-time link. HEAD, as link previews send it, does not use it up."""
        if self._dashboard.tokens or request.method != "GET":
            return self._page(request, 404)
        if not await self._dashboard.blocking.run(self._sessions.open, request.path_params["link"]):
            return self._page(request, 410, used=True)
        return await self._begin(request, None, "/")

    async def sign_in(self, request: Request) -> Response:
        if request.method != "POST":
            return self._page(request)
        if not _from_own_site(request) or self._verifier is None:
            return self._page(request, 403)
        form = parse_qs((await _body(request)).decode("utf-8", "replace"))
        token = (form.get("token") or [""])[0].strip()
        if not token or len(token) > MAX_TOKEN_CHARS or await self._verifier.verify_token(token) is None:
            return self._page(request, 403, refused=True)
        return await self._begin(request, token, (form.get("next") or ["/"])[0])

    async def sign_out(self, request: Request) -> Response:
        response = RedirectResponse(f"{_root(request)}/dashboard/sign-in", 303, HEADERS)
        if request.method == "POST" and _from_own_site(request):
            await self._dashboard.blocking.run(self._sessions.end, request, response)
        return response

    async def not_found(self, request: Request) -> Response:
        try:
            access = await self._dashboard.access(request)
        except TokenRequired:
            return self._dashboard.to_sign_in(request)
        return self._dashboard.response("error.html", request, 404, error="No such page.", access=access)

    def _page(self, request: Request, status: int = 200, **values: Any) -> Response:
        wanted = request.query_params.get("next", "/")
        shown = {"next": wanted, "used": False, "refused": False, "address": str(request.base_url), **values}
        return self._dashboard.response("sign_in.html", request, status, **shown)

    async def _begin(self, request: Request, token: str | None, wanted: str) -> Response:
        """Start a session and go to a page of this server, never to another one."""
        is_own = wanted.startswith("/") and wanted[1:2] not in ("/", "\\") and wanted.isprintable()
        response = RedirectResponse(_root(request) + (wanted if is_own else "/"), 303, HEADERS)
        await self._dashboard.blocking.run(self._sessions.begin, request, response, token)
        return response


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _from_own_site(request: Request) -> bool:
    return request.headers.get("sec-fetch-site", "none") in OWN_SITES


async def _body(request: Request) -> bytes:
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > _MAX_FORM_BYTES:
            return b""
    return bytes(read)
