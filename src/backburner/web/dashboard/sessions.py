"""Dashboard sessions: a cookie holds the browser's token, or marks a sign-in by a one-time link.

A server that requires no tokens prints a one-time link. `backburner dashboard` makes another one: links are
signed with the store's key.
"""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import Any

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...app import Backburner
from ...mcp.transport.auth import Check
from ...store.protocol import Store

#: Lifetime of an unused link.
LINK_S = 3600
#: Lifetime of a session. The token is checked with each request, so a session may end sooner.
_SESSION_S = 7 * 86400
_LOCAL = "local"
#: Used links are remembered this much longer than they are valid, in case two clocks differ.
_MARGIN_S = 3600
#: Longer tokens do not fit in a cookie.
MAX_TOKEN_CHARS = 2500


def one_time_link(store: Store, address: str) -> str:
    """Return a link that opens the dashboard of a server once."""
    return f"{address.rstrip('/')}/dashboard/open/{_signer(store, 'link').dumps(secrets.token_hex(8))}"


class Sessions:
    """Cookies and links of one server. The first use reads the store's key and blocks."""

    def __init__(self, app: Backburner) -> None:
        self._app = app

    @cached_property
    def _cookies(self) -> Any:
        return _signer(self._app.store, "session")

    @cached_property
    def _links(self) -> Any:
        return _signer(self._app.store, "link")

    def open(self, link: str) -> bool:
        """Use a link. Return False for a link that is foreign, expired or used."""
        try:
            name = self._links.loads(link, max_age=LINK_S)
        except BadData:
            return False
        return self._app.store.spend(f"link:{name}", LINK_S + _MARGIN_S)

    def begin(self, request: HTTPConnection, response: Response, token: str | None) -> None:
        """Set the cookie of a new session; without a token, of a sign-in by link."""
        session = secrets.token_hex(8)
        value = self._cookies.dumps([session, _LOCAL] if token is None else [session, "token", token])
        response.set_cookie(_cookie(request), value, _SESSION_S, **_cookie_options(request))

    def end(self, request: HTTPConnection, response: Response) -> None:
        """Delete the cookie and invalidate its copies."""
        match self._contents(request):
            case [str(session), *_]:
                self._app.store.spend(f"session:{session}", _SESSION_S + _MARGIN_S)
        response.delete_cookie(_cookie(request), **_cookie_options(request))

    def is_local(self, request: HTTPConnection) -> bool:
        """Return whether the browser signed in by a link and is still signed in."""
        return bool(self._contents(request)[1:] == [_LOCAL])

    async def is_signed_out(self, request: HTTPConnection) -> bool:
        """Return whether the request's session has been signed out."""
        run = self._app.service.aio.run
        return _cookie(request) in request.cookies and await run(self._is_spent, request)

    async def token(self, request: HTTPConnection) -> str | None:
        if _cookie(request) not in request.cookies:
            return None
        match await self._app.service.aio.run(self._contents, request):
            case [_, "token", str(token)]:
                return token
        return None

    def _contents(self, request: HTTPConnection) -> list[Any]:
        """Return the cookie's contents; empty without a valid session."""
        return [] if self._is_spent(request) else self._signed(request)

    def _is_spent(self, request: HTTPConnection) -> bool:
        match self._signed(request):
            case [str(session), *_]:
                return self._app.store.is_spent(f"session:{session}")
        return False

    def _signed(self, request: HTTPConnection) -> list[Any]:
        try:
            return list(self._cookies.loads(request.cookies.get(_cookie(request), ""), max_age=_SESSION_S))
        except BadData:
            return []


class TokenOfCookie:
    """Middleware that sends the token of a session cookie as a bearer token."""

    def __init__(self, app: ASGIApp, sessions: Sessions, paths: tuple[str, ...]) -> None:
        self._app, self._sessions, self._paths = app, sessions, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._applies(scope):
            request = HTTPConnection(scope)
            has_token = "authorization" in request.headers
            if not has_token and (token := await self._sessions.token(request)) is not None:
                MutableHeaders(scope=scope)["authorization"] = f"Bearer {token}"
        await self._app(scope, receive, send)

    def _applies(self, scope: Scope) -> bool:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        return path == "/" or path.startswith(self._paths)


def signed_in_check(sessions: Sessions) -> Check:
    """Return a check that the session of a request is still signed in."""

    async def holds(scope: Scope) -> bool:
        return not await sessions.is_signed_out(HTTPConnection(scope))

    return holds


def _signer(store: Store, purpose: str) -> Any:
    return URLSafeTimedSerializer(store.secret(), salt=f"backburner.dashboard.{purpose}")


def _cookie(request: HTTPConnection) -> str:
    """Cookies are shared by all ports of a host, so the name contains the port."""
    return f"backburner_{request.url.port or request.url.scheme}"


def _cookie_options(request: HTTPConnection) -> dict[str, Any]:
    path = request.scope.get("root_path", "") or "/"
    return {"path": path, "secure": request.url.scheme == "https", "httponly": True, "samesite": "lax"}
