"""Who looks at the dashboard: a cookie has his token, or says that he came by a link of this host's server.

Where nobody needs a token, the server prints a link that works once; without one there is no cookie. Whoever
can read the store can make another (`backburner dashboard`): it is signed with the store's key.
"""

from __future__ import annotations

import secrets
import time
from functools import cached_property
from typing import Any

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...app import Backburner
from ...store import Store

#: For so long a link works that nobody has used.
LINK_S = 3600
#: For so long a browser is known. A token is looked at with each request, so it may end sooner.
_SESSION_S = 7 * 86400
_LOCAL = "local"
#: Longer tokens fit in no cookie.
LONGEST_TOKEN = 2500


def one_time_link(store: Store, address: str) -> str:
    """A link that opens the dashboard of the server at that address, once."""
    return f"{address.rstrip('/')}/dashboard/open/{_signer(store, 'link').dumps(secrets.token_hex(8))}"


class Sessions:
    """The cookies and links of one server. Reading the store's key blocks, the first time."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._began = int(time.time())
        self._used: dict[str, float] = {}

    @cached_property
    def _cookies(self) -> Any:
        return _signer(self._app.store, "session")

    @cached_property
    def _links(self) -> Any:
        return _signer(self._app.store, "link")

    def open(self, link: str) -> bool:
        """Whether a link opens the dashboard: it is ours, of this server's time, and nobody has used it."""
        try:
            name, made = self._links.loads(link, max_age=LINK_S, return_timestamp=True)
        except BadData:
            return False
        now = time.time()
        self._used = {used: until for used, until in self._used.items() if until > now}
        if made.timestamp() < self._began or name in self._used:
            return False
        self._used[name] = now + LINK_S + 1
        return True

    def begin(self, request: HTTPConnection, response: Response, token: str | None) -> None:
        """Give a browser its cookie: the token's, or for who came by a link."""
        value = self._cookies.dumps([_LOCAL] if token is None else ["token", token])
        response.set_cookie(_cookie(request), value, _SESSION_S, **_kept(request))

    def end(self, request: HTTPConnection, response: Response) -> None:
        response.delete_cookie(_cookie(request), **_kept(request))

    def is_local(self, request: HTTPConnection) -> bool:
        """Whether this browser came by a link."""
        return bool(self._said(request) == [_LOCAL])

    async def token(self, request: HTTPConnection) -> str | None:
        if _cookie(request) not in request.cookies:
            return None
        match await self._app.service.aio.run(self._said, request):
            case ["token", str(token)]:
                return token
        return None

    def _said(self, request: HTTPConnection) -> Any:
        value = request.cookies.get(_cookie(request))
        if value is None:
            return None
        try:
            return self._cookies.loads(value, max_age=_SESSION_S)
        except BadData:
            return None


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


def _signer(store: Store, purpose: str) -> Any:
    return URLSafeTimedSerializer(store.secret(), salt=f"backburner.dashboard.{purpose}")


def _cookie(request: HTTPConnection) -> str:
    """Browsers don't tell the ports of a host apart, so the name does."""
    return f"backburner_{request.url.port or request.url.scheme}"


def _kept(request: HTTPConnection) -> dict[str, Any]:
    path = request.scope.get("root_path", "") or "/"
    return {"path": path, "secure": request.url.scheme == "https", "httponly": True, "samesite": "lax"}
