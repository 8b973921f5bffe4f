"""Who looks at the dashboard: a cookie has his token, or says that he came by a link of this host's server.

Where nobody needs a token, the server prints a link that works once; without one there is no cookie. Whoever
can read the store can make another (`backburner dashboard`): it is signed with the store's key.
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
from ...mcp.serving.revocation import Check
from ...store import Store

#: An unused link works for so long.
LINK_S = 3600
#: For so long a browser is known. A token is looked at with each request, so it may end sooner.
_SESSION_S = 7 * 86400
_LOCAL = "local"
#: What was used up is remembered for longer than it could be used again, whatever two clocks say.
_MARGIN_S = 3600
#: Longer tokens fit in no cookie.
LONGEST_TOKEN = 2500


def one_time_link(store: Store, address: str) -> str:
    """A link that opens the dashboard of the server at that address, once."""
    return f"{address.rstrip('/')}/dashboard/open/{_signer(store, 'link').dumps(secrets.token_hex(8))}"


class Sessions:
    """The cookies and links of one server. Reading the store's key blocks, the first time."""

    def __init__(self, app: Backburner) -> None:
        self._app = app

    @cached_property
    def _cookies(self) -> Any:
        return _signer(self._app.store, "session")

    @cached_property
    def _links(self) -> Any:
        return _signer(self._app.store, "link")

    def open(self, link: str) -> bool:
        """Use up a link. Return whether it is one of this store, not too old, and was not used before."""
        try:
            name = self._links.loads(link, max_age=LINK_S)
        except BadData:
            return False
        return self._app.store.spend(f"link:{name}", LINK_S + _MARGIN_S)

    def begin(self, request: HTTPConnection, response: Response, token: str | None) -> None:
        """Give a browser its cookie: of its token, or of the link that it came by."""
        session = secrets.token_hex(8)
        value = self._cookies.dumps([session, _LOCAL] if token is None else [session, "token", token])
        response.set_cookie(_cookie(request), value, _SESSION_S, **_kept(request))

    def end(self, request: HTTPConnection, response: Response) -> None:
        """Sign a browser out: its cookie is deleted, and a copy of it is worth nothing any more."""
        match self._said(request):
            case [str(session), *_]:
                self._app.store.spend(f"session:{session}", _SESSION_S + _MARGIN_S)
        response.delete_cookie(_cookie(request), **_kept(request))

    def is_local(self, request: HTTPConnection) -> bool:
        """Return whether this browser came by a link, and has not signed out since."""
        return bool(self._said(request)[1:] == [_LOCAL])

    async def is_signed_out(self, request: HTTPConnection) -> bool:
        """Return whether the request's cookie was one of ours, and its browser has signed out since."""
        run = self._app.service.aio.run
        return _cookie(request) in request.cookies and await run(self._is_spent, request)

    async def token(self, request: HTTPConnection) -> str | None:
        if _cookie(request) not in request.cookies:
            return None
        match await self._app.service.aio.run(self._said, request):
            case [_, "token", str(token)]:
                return token
        return None

    def _said(self, request: HTTPConnection) -> list[Any]:
        """Return the contents of the cookie; nothing if there is none, or if its session has ended."""
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
    """Lets a browser with a cookie use the dashboard and the API as the bearer of its token."""

    def __init__(self, app: ASGIApp, sessions: Sessions, paths: tuple[str, ...]) -> None:
        self._app, self._sessions, self._paths = app, sessions, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_for(scope):
            request = HTTPConnection(scope)
            given = "authorization" in request.headers
            if not given and (token := await self._sessions.token(request)) is not None:
                MutableHeaders(scope=scope)["authorization"] = f"Bearer {token}"
        await self._app(scope, receive, send)

    def _is_for(self, scope: Scope) -> bool:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        return path == "/" or path.startswith(self._paths)


def signed_in_check(sessions: Sessions) -> Check:
    """Return a check that the browser of a request has not signed out since."""

    async def holds(scope: Scope) -> bool:
        return not await sessions.is_signed_out(HTTPConnection(scope))

    return holds


def _signer(store: Store, purpose: str) -> Any:
    return URLSafeTimedSerializer(store.secret(), salt=f"backburner.dashboard.{purpose}")


def _cookie(request: HTTPConnection) -> str:
    """Browsers don't tell the ports of a host apart, so the name does."""
    return f"backburner_{request.url.port or request.url.scheme}"


def _kept(request: HTTPConnection) -> dict[str, Any]:
    path = request.scope.get("root_path", "") or "/"
    return {"path": path, "secure": request.url.scheme == "https", "httponly": True, "samesite": "lax"}
