"""What of all this a server has on its port: the API, and the dashboard if it is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from ..app import Backburner
from ..mcp.serving.revocation import Check
from ..mcp.serving.tokens import Verifier
from . import api, dashboard
from .dashboard.sessions import Sessions, TokenOfCookie, signed_in_check


class Web:
    """`middleware` belongs before the check of tokens: a browser has its own in a cookie.

    `checks` say whether requests that are being answered would be let in again.
    """

    def __init__(self, app: Backburner, verifier: Verifier | None) -> None:
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
