"""API framework on FastAPI: access checks, problem+json errors (RFC 9457) and the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import BackburnerError, InvalidRequest, TooLarge
from ...version import VERSION
from ..access import (
    OWN_SITES,
    SAFE_HEADERS,
    CrossSite,
    NoSuchMethod,
    NoSuchPath,
    NotJson,
    TokenRequired,
    access_of_request,
    status_of,
)
from .models import Problem

_PROBLEM = "application/problem+json"
_RETRY_AFTER_S = 5
_MAX_REASON = 500
#: Statuses that any operation may return.
_COMMON_STATUSES = (400, 401, 403, 405, 503)

_DESCRIPTION = """Read, control and follow the tasks of this server.

A token sees the tasks of its owner; other tasks return the same 404 as unknown ones."""


def json_response(values: Any, status: int = 200) -> Response:
    return Response(json.dumps(values), status, SAFE_HEADERS, "application/json")


def problem(error: BackburnerError, headers: Mapping[str, str] | None = None) -> Response:
    status = status_of(error)
    details = {
        name: value if isinstance(value, int | float) else str(value) for name, value in error.details.items()
    }
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": str(error),
        "code": error.code,
        "details": details,
    }
    sent = {**SAFE_HEADERS, **(headers or {})}
    if status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        sent["Retry-After"] = str(error.details.get("retry_after_s", _RETRY_AFTER_S))
    return Response(json.dumps(body), status, sent, _PROBLEM)


def invalid(first: Mapping[str, Any], what: str, where: Sequence[Any]) -> InvalidRequest:
    """Return the error for pydantic's first finding."""
    at = f" at {'.'.join(map(str, where))}" if where else ""
    return InvalidRequest(reason=f"The {what} is not valid{at}: {first['msg']}"[:_MAX_REASON])


class _LimitedRequest(Request):
    """A request with a size limit on its body and strict JSON. An empty body stands for `{}`."""

    async def body(self) -> bytes:
        if hasattr(self, "_body"):
            return self._body
        limit, read = self.app.state.max_bytes, bytearray()
        async for chunk in self.stream():
            read += chunk
            if len(read) > limit:
                raise TooLarge(what="The body of the request", size=len(read), limit=limit)
        self._body = bytes(read) or b"{}"
        return self._body

    async def json(self) -> Any:
        return from_json(await self.body())


class CheckedRoute(APIRoute):
    """A route that checks access before it reads the request."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            request.state.access = access_of_request(tokens=request.app.state.tokens)
            if request.method != "GET":
                _refuse_other_sites(request)
            return await handle(_LimitedRequest(request.scope, request.receive))

        return checked


def _refuse_other_sites(request: Request) -> None:
    """Raise CrossSite or NotJson. A form on another site can send neither JSON nor these headers."""
    if request.headers.get("sec-fetch-site", "none") not in OWN_SITES:
        raise CrossSite
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and (request.method != "DELETE" or kind):
        raise NotJson


def new_api(base: str, routers: Sequence[APIRouter], *, tokens: bool, max_bytes: int) -> FastAPI:
    api = FastAPI(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    api.state.tokens, api.state.max_bytes, api.state.base = tokens, max_bytes, base
    handlers: dict[Any, Any] = {
        BackburnerError: _on_error,
        RequestValidationError: _on_invalid,
        HTTPException: _on_http_error,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)
    for router in routers:
        api.include_router(router)
    api.state.routes = [route for router in routers for route in router.routes]
    return api


def below(base: str, api: ASGIApp) -> ASGIApp:
    """Serve an API below `base`, and HEAD as GET: the HTTP server omits the body."""

    class Below:  # a class, so that Starlette takes it as an ASGI app
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            root = scope.get("root_path", "") + base
            await api({**scope, "method": method, "root_path": root}, receive, send)

    return Below()


async def _on_error(request: Request, error: BackburnerError) -> Response:
    return problem(error)


async def _on_invalid(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    what, *where = first["loc"]
    return problem(invalid(first, str(what), where))


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    if isinstance(error.__cause__, BackburnerError):
        return problem(error.__cause__)
    if error.status_code == 404:
        return problem(NoSuchPath())
    if error.status_code == 405:
        try:
            access_of_request(tokens=request.app.state.tokens)
        except TokenRequired as required:
            return problem(required)
        routes = [one for one in request.app.state.routes if one.matches(request.scope)[0] is not Match.NONE]
        allowed = sorted({method for one in routes for method in one.methods})
        return problem(NoSuchMethod(method=request.method[:20]), {"Allow": ", ".join(allowed)})
    return problem(InvalidRequest(reason="The body is not valid JSON"))


# -- the OpenAPI document --------------------------------------------------------------------------


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documented error responses of an operation, beside the common ones."""
    content = {_PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in sorted({*_COMMON_STATUSES, *statuses})
    }


def _operation_id(route: APIRoute) -> str:
    first, *others = route.name.split("_")
    return first + "".join(map(str.title, others))


def openapi(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="Backburner",
        version=VERSION,
        description=_DESCRIPTION,
        routes=api.routes,
        servers=[{"url": api.state.base}],
    )
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # FastAPI's own; invalid requests get 400 here
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema(mode="serialization")
    if api.state.tokens:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    return document
