"""A page of the dashboard: who may see it, how it is made, and how it goes on moving."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from ...app import Backburner
from ...errors import BackburnerError
from ...version import VERSION
from ..access import Access, access_of_request
from ..api.problems import status_of
from ..api.streams import LIFE_S, stream
from ..blocking import Blocking
from ..feed import OPEN
from ..reading import Reading
from ..refusals import NoSuchPath, TokenRequired
from .live import Live
from .rendering import environment
from .sessions import Sessions

logger = logging.getLogger(__name__)

#: No page loads anything from elsewhere, runs a script that stands in it, or stands in another's.
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
_FAILED = "This page cannot be shown. The server's log says why."


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to see."""

    access: Access
    path: Mapping[str, str]
    query: QueryParams


class Elsewhere(Exception):
    """What is asked for is at another address: a path of this server, or a link of the artifacts' storage."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


#: What a template needs. It blocks, and raises what the TaskService raises, and Elsewhere.
View = Callable[[Asked], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """`section` is the entry of the menu that it belongs to."""

    path: str
    template: str
    section: str
    view: View


class Desk:
    """What all pages of a server have in common."""

    def __init__(self, app: Backburner, sessions: Sessions, *, tokens: bool) -> None:
        self.app, self.sessions, self.tokens = app, sessions, tokens
        self.reading = Reading(app)
        self.blocking, self.live = Blocking(app), Live(app)

    async def access(self, request: Request) -> Access:
        """Who looks. Raises TokenRequired for a browser that is not known."""
        if not self.tokens and not await self.blocking.run(self.sessions.is_local, request):
            raise TokenRequired
        return access_of_request(tokens=self.tokens)

    def rendered(self, template: str, request: Request, values: Mapping[str, Any]) -> str:
        about = {
            "root": request.scope.get("root_path", ""),
            "app_name": self.app.name,
            "version": VERSION,
            "tokens": self.tokens,
        }
        nobody = {"access": None, "error": None, "section": "", "layout": "base.html"}
        return environment().get_template(template).render({**nobody, **about, **values})

    def answer(self, template: str, request: Request, status: int = 200, **values: Any) -> Response:
        return Response(self.rendered(template, request, values), status, HEADERS, "text/html")

    def sign_in(self, request: Request) -> Response:
        """To where a browser says who it is; from there it comes back."""
        root = request.scope.get("root_path", "")
        wanted = request.url.path.removeprefix(root) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{root}/dashboard/sign-in?{urlencode({'next': wanted})}", 303, HEADERS)


class PageEndpoint:
    """A page as an ASGI app: the whole of it, or with `live` in the query a stream of how it goes on."""

    def __init__(self, desk: Desk, page: Page) -> None:
        self._desk, self._page = desk, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        access: Access | None = None
        try:
            access = await self._desk.access(request)
            response = await self._answer(request, access)
        except TokenRequired:
            response = self._desk.sign_in(request)
        except Elsewhere as known:
            root = request.scope.get("root_path", "") if known.address.startswith("/") else ""
            response = RedirectResponse(root + known.address, 303, HEADERS)
        except BackburnerError as error:
            values = {"error": error, "section": self._page.section, "access": access}
            response = self._desk.answer("error.html", request, status_of(error), **values)
        except Exception:
            logger.exception("The page %s could not be rendered", request.url.path)
            values = {"error": _FAILED, "section": self._page.section, "access": access}
            response = self._desk.answer("error.html", request, 500, **values)
        await response(scope, receive, send)

    async def _answer(self, request: Request, access: Access) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(status_code=405, headers={**HEADERS, "Allow": "GET, HEAD"})
        query = QueryParams(
            [(name, value) for name, value in request.query_params.multi_items() if name != _LIVE]
        )
        asked = Asked(access, request.path_params, query)
        if _LIVE not in request.query_params:
            return Response(await self._html(asked, request, "base.html"), 200, HEADERS, "text/html")

        async def render() -> str:
            try:
                return await self._html(asked, request, "live.html")
            except Elsewhere:
                raise NoSuchPath from None  # nobody looks at it there

        key = (request.url.path, str(query), access.principal, access.role)
        return stream(self._moving(key, render))

    async def _html(self, asked: Asked, request: Request, layout: str) -> str:
        def made() -> str:
            values = {"access": asked.access, "section": self._page.section, "layout": layout}
            return self._desk.rendered(self._page.template, request, values | self._page.view(asked))

        return await self._desk.blocking.run(made)

    async def _moving(self, key: Any, render: Any) -> AsyncIterator[bytes]:
        yield OPEN.frame
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIFE_S):
                async with contextlib.aclosing(self._desk.live.follow(key, render)) as frames:
                    async for frame in frames:
                        yield frame
