"""An operation of the API: what it takes and gives, and how a request becomes a call of it."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...errors import BackburnerError, InvalidRequest, TooLarge
from ..access import Access, access_of_request
from ..refusals import CrossSite, NoSuchMethod, NotJson
from .models import Given
from .problems import SAFE, problem

_SAFE_METHODS = ("GET", "HEAD")
#: What a browser says of a request that a page of our own made, or a person.
_OWN_SITES = ("same-origin", "none")
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is checked: who asks, and what for. `query` and `body` are as the operation says."""

    access: Access
    path: Mapping[str, str]
    query: Any
    body: Any
    request: Request


#: The answer: values for JSON, with another status than usual if that is needed; or a whole response.
Answer = dict[str, Any] | tuple[int, dict[str, Any]] | Response | None
Handler = Callable[[Asked], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """`refused` are the statuses that it may answer with, beside those that every operation has."""

    method: str
    path: str
    name: str
    summary: str
    run: Handler
    answer: type[BaseModel] | None = None
    query: type[Given] | None = None
    body: type[Given] | None = None
    status: int = 200
    also: Sequence[int] = ()
    refused: Sequence[int] = ()
    streams: bool = False
    group: str = field(default="Tasks")


def as_json(values: Any, status: int = 200) -> Response:
    """An answer with a body. What may be large is made into one off the event loop."""
    return Response(json.dumps(values), status, SAFE, "application/json")


class Endpoint:
    """All operations at one path, as an ASGI app, so that every method is answered in our words."""

    def __init__(self, operations: Sequence[Operation], *, tokens: bool, most_bytes: int) -> None:
        self._operations = {one.method: one for one in operations}
        self._tokens, self._most_bytes = tokens, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except BackburnerError as error:
            response = problem(error)
            if isinstance(error, NoSuchMethod):
                response.headers["Allow"] = ", ".join(self._operations)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        access = access_of_request(tokens=self._tokens)
        method = "GET" if request.method == "HEAD" else request.method
        operation = self._operations.get(method)
        if operation is None:
            raise NoSuchMethod(method=method[:20])
        if method not in _SAFE_METHODS:
            _refuse_other_sites(request)
        query = (
            None
            if operation.query is None
            else parsed_query(operation.query, request.query_params.multi_items())
        )
        body = None if operation.body is None else await self._body(operation.body, request)
        answer = await operation.run(Asked(access, request.path_params, query, body, request))
        if isinstance(answer, Response):
            return answer
        status, values = answer if isinstance(answer, tuple) else (operation.status, answer)
        if values is None:
            return Response(status_code=status, headers=SAFE)
        return as_json(values, status)

    async def _body(self, model: type[Given], request: Request) -> Given:
        read = bytearray()
        async for chunk in request.stream():
            read += chunk
            if len(read) > self._most_bytes:
                raise TooLarge(what="The body of the request", size=len(read), limit=self._most_bytes)
        return _checked("The body", lambda: model.model_validate_json(bytes(read) or b"{}"))


def _refuse_other_sites(request: Request) -> None:
    """Raises CrossSite and NotJson: a form of another site comes neither as JSON, nor unannounced."""
    if request.headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        raise CrossSite
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and (request.method != "DELETE" or kind):
        raise NotJson


def parsed_query(model: type[Given], query: Iterable[tuple[str, str]]) -> Given:
    """What a query says. Raises InvalidRequest."""
    given: dict[str, Any] = {}
    for name, value in query:
        if _is_list(model, name):
            given.setdefault(name, []).append(value)
        else:
            given[name] = value
    return _checked("The query", lambda: model.model_validate(given))


def _is_list(model: type[Given], name: str) -> bool:
    known = model.model_fields.get(name)
    kind = None if known is None else known.annotation
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return any(typing.get_origin(one) is list for one in kinds)


def _checked(what: str, check: Callable[[], Given]) -> Given:
    """Raises InvalidRequest, saying where and why."""
    try:
        return check()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = f"{what} is not valid{f' at {where}' if where else ''}: {first['msg']}"
        raise InvalidRequest(reason=reason[:_LONGEST_REASON]) from None
