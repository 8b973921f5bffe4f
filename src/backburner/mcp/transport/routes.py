"""HTTP routes beside MCP: downloads, health, metrics, web and remote workers."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware, auth_context_var
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...app import Backburner
from ...core.files import as_attachment
from ...core.task import Artifact
from ...engines.health import QueueUse, Trouble, queue_use, troubles
from ...engines.remote.server import routes as worker_routes
from ...errors import ArtifactStorageError, BackburnerError
from ...observability.metrics import Metrics
from ...store import store_is_there
from ..results import ArtifactLinks, media_type
from .auth import Revocation, token_check, verifier_of
from .guards import EVERYWHERE, AllowedHosts, BodyTimeout, HostOriginGuard

T = TypeVar("T")

#: Cache time of a result.
_FRESH_S = 1.0


class SingleFlight(Generic[T]):
    """Runs a function that may hang in one thread at a time, and caches its result."""

    def __init__(self, look: Callable[[], T], name: str, patience_s: float) -> None:
        """Callers wait up to `patience_s`."""
        self._look = look
        self._name = name
        self._patience_s = patience_s
        self._current: Future[T] | None = None
        self._begun_at = 0.0

    async def found(self) -> T:
        """Return the result. Raises TimeoutError, and what the function raises."""
        found = asyncio.wrap_future(self._begun())
        return await asyncio.wait_for(asyncio.shield(found), self._patience_s)

    def _begun(self) -> Future[T]:
        """Return the running or cached call, or start a new one."""
        current = self._current
        if current is None or (current.done() and time.monotonic() - self._begun_at > _FRESH_S):
            current, self._begun_at = Future(), time.monotonic()
            self._current = current
            threading.Thread(target=self._run, args=(current,), name=self._name, daemon=True).start()
        return current

    def _run(self, look: Future[T]) -> None:
        try:
            look.set_result(self._look())
        except BaseException as error:
            look.set_exception(error)


_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_RETRY_AFTER_S = "10"
#: Media types that a page of this origin could execute or embed.
_ACTIVE = re.compile(r"html|[/+]xml|javascript|ecmascript|css|pdf", re.IGNORECASE)
_SVG = "image/svg+xml"  # scripts do not run in an image


def download_from(app: Backburner) -> Any:
    """Return the endpoint of `/artifacts/{artifact_id}/{name}`."""

    async def download(request: Request) -> Response:
        artifact_id = request.path_params["artifact_id"]
        try:
            artifact = await app.service.aio.run(
                _linked, app, artifact_id, request.query_params.get("token", "")
            )
        except BackburnerError:
            return PlainTextResponse("This link is not valid, or not any more.\n", status_code=404)
        headers = {
            # Tool output must never run as a page of this origin.
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-store",
            "ETag": f'"{artifact.sha256}"',
        }
        return await _stream(app, artifact, request, headers)

    return download


def _linked(app: Backburner, artifact_id: str, token: str) -> Artifact:
    ArtifactLinks(app.store, "", 0).check(artifact_id, token)
    return app.store.artifact(artifact_id)


async def _stream(app: Backburner, artifact: Artifact, request: Request, headers: dict[str, str]) -> Response:
    """Return an artifact's bytes, or one range of them. The file is opened once."""
    size = artifact.size_bytes
    offset, end = asked = _range(request, artifact) or (0, size)
    if offset >= end and size:
        return PlainTextResponse(status_code=416, headers={"Content-Range": f"bytes */{size}"})
    is_head = request.method == "HEAD"
    chunks = app.artifacts.chunks(artifact, offset, 1 if is_head else end - offset)
    try:
        # Read before the response starts, so that it can still be 404.
        first = await app.service.aio.run(next, chunks, b"")
    except ArtifactStorageError as error:
        return PlainTextResponse(f"{error}\n", status_code=503, headers={"Retry-After": _RETRY_AFTER_S})
    except OSError:
        return PlainTextResponse("This file is gone.\n", status_code=404)
    headers |= {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - offset),
        "Content-Disposition": as_attachment(artifact.name),
    }
    if asked != (0, size):
        headers["Content-Range"] = f"bytes {offset}-{end - 1}/{size}"
    body: Iterator[bytes] = iter(()) if is_head else itertools.chain([first], chunks)
    status = 200 if asked == (0, size) else 206
    return StreamingResponse(body, status_code=status, media_type=_passive(artifact), headers=headers)


def _passive(artifact: Artifact) -> str:
    """Return the media type of an artifact, unless a browser could execute it."""
    kind = media_type(artifact)
    return "application/octet-stream" if _ACTIVE.search(kind) and kind != _SVG else kind


def _range(request: Request, artifact: Artifact) -> tuple[int, int] | None:
    """Return the requested byte range; None for the whole file, also for several ranges."""
    found = _RANGE.fullmatch(request.headers.get("range", "").strip())
    known = request.headers.get("if-range", f'"{artifact.sha256}"')
    if found is None or known != f'"{artifact.sha256}"' or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        return max(0, artifact.size_bytes - int(last)), artifact.size_bytes
    return int(first), min(artifact.size_bytes, int(last) + 1) if last else artifact.size_bytes


#: Time limit of a health request.
_HEALTH_TIMEOUT_S = 2.5
#: Delay before a second check: a missing supervisor may be starting.
_LOOK_AGAIN_S = 1.2
_MAY_BE_STARTING = {Trouble.NO_WORKERS, Trouble.STOPPED, Trouble.SILENT}
_ALL_FULL = "every queue is full"


@dataclass(frozen=True, slots=True)
class _Found:
    """Result of one health check. `all_full`: no tool of the app can be called now."""

    troubles: tuple[Trouble, ...] = ()
    queues: QueueUse = QueueUse()
    all_full: bool = False

    def to_dict(self) -> dict[str, Any]:
        of_store = [trouble for trouble in self.troubles if not trouble.of_supervisor]
        of_supervisor = [trouble for trouble in self.troubles if trouble.of_supervisor]
        return {
            "store": of_store or "ok",
            "supervisor": of_supervisor or "ok",
            "queues": {
                "queued": self.queues.queued,
                "running": self.queues.running,
                "full": len(self.queues.full),
            },
        }


class HealthProbe:
    """Answers 200 `ok`, or 503 with one line per problem, within three seconds.

    It requires no token, so it reveals nothing private.
    """

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._look = SingleFlight(self._look_at_all, "backburner-health", _HEALTH_TIMEOUT_S)

    async def healthz(self, request: Request) -> Response:
        """Report whether tasks are stored and executed; a full queue is healthy."""
        found = await self._find()
        return _answer(request, found, [*found.troubles])

    async def readyz(self, request: Request) -> Response:
        """Report whether a new call would be accepted and executed."""
        found = await self._find()
        return _answer(request, found, [*found.troubles, *([_ALL_FULL] if found.all_full else [])])

    async def _find(self) -> _Found:
        try:
            return await self._look.found()
        except TimeoutError:
            return _Found((Trouble.NO_ANSWER,))
        except (BackburnerError, OSError):
            return _Found((Trouble.UNREADABLE,))

    def _look_at_all(self) -> _Found:
        app = self._app
        if "store" not in vars(app) and not store_is_there(app.settings.store):
            return _Found()  # no store yet
        found = tuple(troubles(app.store, app.settings, app.data_dir))
        if not _MAY_BE_STARTING.isdisjoint(found):
            time.sleep(_LOOK_AGAIN_S)
            found = tuple(troubles(app.store, app.settings, app.data_dir))
        if Trouble.UNREADABLE in found:
            return _Found(found)
        queues = queue_use(app.store, app.settings)
        wanted = {tool.queue_in(app.settings) for tool in app.tools} or {app.settings.default_queue}
        return _Found(found, queues, wanted <= queues.full)


def _answer(request: Request, found: _Found, wrong: list[str]) -> Response:
    code = 503 if wrong else 200
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"ok": not wrong, **found.to_dict()}, status_code=code)
    return PlainTextResponse("".join(f"{line}\n" for line in wrong) or "ok\n", status_code=code)


#: Less than Prometheus' default scrape timeout of ten seconds.
_SCRAPE_TIMEOUT_S = 8.0
_NOT_INSTALLED = "Metrics need prometheus-client. Install it: pip install 'backburner[metrics]'\n"


class MetricsPage:
    """Serves the metrics; `backburner_store_up` is 0 while the store cannot be read."""

    def __init__(self, app: Backburner) -> None:
        self._metrics = Metrics(app)
        self._look = SingleFlight(self._metrics.of_store, "backburner-metrics", _SCRAPE_TIMEOUT_S)

    async def __call__(self, request: Request) -> Response:
        try:
            import prometheus_client  # noqa: F401
        except ImportError:
            return PlainTextResponse(_NOT_INSTALLED, status_code=501)
        try:
            of_store = await self._look.found()
        except (TimeoutError, BackburnerError, OSError):
            return _written(request, self._metrics.of_server(store_up=False))
        return _written(request, [*of_store, *self._metrics.of_server(store_up=True)])


class _Families:
    """A collector of ready metric families."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families


def _written(request: Request, families: Iterable[Any]) -> Response:
    """Encode the families in the format that the scraper accepts."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry: Any = CollectorRegistry()
    registry.register(_Families(list(families)))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"Content-Type": content_type})


_LOCAL_ONLY = (
    "Without tokens only clients on the same host are allowed. Create a token with `backburner token new`, "
    "or set http.auth.tokens or http.auth.jwks.\n"
)


class SideRoutes:
    """Routes beside MCP, with their middleware. Raises ConfigError.

    `open` requires no bearer token: health, signed downloads, and workers with passes.
    """

    def __init__(self, app: Backburner, host: str) -> None:
        from ...web.mount import Web

        self.verifier = verifier_of(app)
        web = Web(app, self.verifier)
        health, metrics = HealthProbe(app), request_response(MetricsPage(app))
        self.middleware = [
            Middleware(BodyTimeout, idle_s=app.settings.http.idle_timeout_s),
            Middleware(HostOriginGuard, hosts=AllowedHosts(host, app.settings.http)),
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
        self.api = [*web.api, Route("/metrics", endpoint=AsgiEndpoint(metrics))]
        self.dashboard = web.dashboard


def add_side_routes(app: Backburner, made: Starlette, *, has_auth: bool) -> None:
    """Add the routes to an HTTP app that a framework made for MCP, after its own routes.

    Without tokens of ours only clients on the same host are allowed. If the framework has its own tokens
    (`has_auth`), which we cannot check, only `SideRoutes.open` is added.
    """
    side = SideRoutes(app, EVERYWHERE[0])
    checks = [Middleware(OwnTokenContext), *side.middleware]
    _add(made, side.open, checks)
    if side.verifier is None:
        checks = [*checks, Middleware(LocalOnly)]
    if side.verifier is not None or not has_auth:
        _add(made, [*side.api, *side.dashboard], checks)


def _add(made: Starlette, routes: Sequence[BaseRoute], checks: Sequence[Middleware]) -> None:
    """Add routes with middleware for them alone."""
    inner = AsgiEndpoint(Starlette(routes=routes, middleware=checks))
    paths = dict.fromkeys(one.path for one in routes if isinstance(one, Route))
    made.router.routes += [Route(path, endpoint=inner) for path in paths]


class OwnTokenContext:
    """Hides the token that the framework has accepted: it grants no rights here."""

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


class AsgiEndpoint:
    """Wraps an ASGI app as the endpoint of a Route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
