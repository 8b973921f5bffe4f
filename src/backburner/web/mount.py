"""Routes and middleware of API and dashboard, for the server's HTTP app."""

from __future__ import annotations

from collections.abc import Sequence

from mcp.server.auth.provider import TokenVerifier
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from ..app import Backburner
from ..mcp.transport.auth import Check
from . import api, dashboard
from .dashboard.sessions import Sessions, TokenOfCookie, signed_in_check


class Web:
    """The API, and the dashboard if enabled.

    `middleware` runs before tokens are verified: browsers send theirs in a cookie. `checks` tell whether
    requests in progress are still authorized.
    """

    def __init__(self, app: Backburner, verifier: TokenVerifier | None) -> None:
        self.api: Sequence[BaseRoute] = api.routes(app, tokens=verifier is not None)
        self.dashboard: Sequence[BaseRoute] = ()
        self.middleware: Sequence[Middleware] = ()
        self.checks: list[Check] = []
        if app.settings.http.dashboard:
            sessions = Sessions(app)
            self.dashboard = dashboard.routes(app, sessions, verifier)
            paths = (f"{api.PATH}/", "/dashboard/")
            self.checks = [signed_in_check(sessions)]
            self.middleware = [Middleware(TokenOfCookie, sessions=sessions, paths=paths)]
