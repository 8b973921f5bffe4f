"""What a port has beside MCP: API, dashboard, downloads, health and metrics, and the checks before them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware, auth_context_var
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...app import Backburner
from ...door.server import routes as worker_routes
from .connections import BodyDeadline
from .downloads import download_from
from .healthz import Health
from .hosts import EVERYWHERE, HostAndOrigin, Hosts
from .metrics_page import MetricsPage
from .revocation import Revocation, token_check
from .tokens import verifier_of

_LOCAL_ONLY = (
    "Without tokens this is for clients on the same host. Make a token with `backburner token new`, "
    "or set http.auth.tokens or http.auth.jwks.\n"
)


class Beside:
    """`open` needs no token of ours: health, downloads by signed links, and workers with their passes.

    Raises ConfigError.
    """

    def __init__(self, app: Backburner, host: str) -> None:
        from ...web.at_server import Web  # it is above us, and on the same port

        self.verifier = verifier_of(app)
        web = Web(app, self.verifier)
        health, metrics = Health(app), request_response(MetricsPage(app))
        self.middleware = [
            Middleware(BodyDeadline, idle_s=app.settings.http.idle_timeout_s),
            Middleware(HostAndOrigin, hosts=Hosts(host, app.settings.http)),
        ]
        if self.verifier is not None:
            metrics = RequireAuthMiddleware(metrics, required_scopes=[])
            self.middleware += [
                *web.middleware,
                Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(self.verifier)),
                Middleware(AuthContextMiddleware),
            ]
        checks = [*([] if self.verifier is None else [token_check(self.verifier)]), *web.checks]
        self.middleware += [Middleware(Revocation, checks=checks)] if checks else []
        self.open: list[BaseRoute] = [
            Route("/artifacts/{artifact_id}/{name:path}", endpoint=download_from(app)),
            Route("/healthz", endpoint=health.healthz),
            Route("/readyz", endpoint=health.readyz),
            *(worker_routes(app) if app.settings.http.worker_door else []),
        ]
        self.api = [*web.api, Route("/metrics", endpoint=AsEndpoint(metrics))]
        self.dashboard = web.dashboard


def add_beside(app: Backburner, made: Starlette, *, has_auth: bool) -> None:
    """Add all of it to an HTTP app that a framework made for MCP; the framework's own routes come first.

    Where no tokens of ours are configured, only clients on the same host are answered; and if the framework
    asks for tokens of its own (`has_auth`), which we cannot check, only `Beside.open` is added.
    """
    beside = Beside(app, EVERYWHERE[0])
    checks = [Middleware(OwnTokensOnly), *beside.middleware]
    _add(made, beside.open, checks)
    if beside.verifier is None:
        checks = [*checks, Middleware(LocalOnly)]
    if beside.verifier is not None or not has_auth:
        _add(made, [*beside.api, *beside.dashboard], checks)


def _add(made: Starlette, routes: Sequence[BaseRoute], checks: Sequence[Middleware]) -> None:
    """Add routes with checks before them alone: each of their paths leads to one app with both."""
    inner = AsEndpoint(Starlette(routes=routes, middleware=checks))
    paths = dict.fromkeys(one.path for one in routes if isinstance(one, Route))
    made.router.routes += [Route(path, endpoint=inner) for path in paths]


class OwnTokensOnly:
    """Forgets the token that the framework has accepted: it says nothing about rights here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        before = auth_context_var.set(None)
        try:
            own = {name: value for name, value in scope.items() if name not in ("auth", "user")}
            await self._app(own, receive, send)
        finally:
            auth_context_var.reset(before)


class LocalOnly:
    """Refuses clients on other hosts with 403."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_local(scope):
            await self._app(scope, receive, send)
            return
        await PlainTextResponse(_LOCAL_ONLY, status_code=403)(scope, receive, send)


def _is_local(scope: Scope) -> bool:
    try:
        return ipaddress.ip_address((scope.get("client") or ("",))[0]).is_loopback
    except ValueError:
        return False


class AsEndpoint:
    """An ASGI app as the endpoint of a Route: Starlette takes an instance of a class for one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
