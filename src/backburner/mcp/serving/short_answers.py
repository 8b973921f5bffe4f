"""Requests of 2026-07-28 that are answered at once, without the stream that the SDK makes for each over HTTP.

The SDK runs every handler beside a stream, for what it may tell meanwhile, and beside a watch for a client
that goes. Making a task and looking at one need neither, and clients look often.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import modern_error_data, serve_one
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundModernRoute,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_jsonable_python
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..middleware import CALL, TaskMiddleware
from ..sdk import lifespan_state_of

_LONGEST_BODY = 65_536
_MEDIA_TYPES = ("application/json", "text/event-stream")
_encoded = json.JSONEncoder(separators=(",", ":"), default=to_jsonable_python).encode


def answer_shortly(manager: StreamableHTTPSessionManager) -> None:
    """Let the manager of a server with tasks answer without a stream what needs none."""
    middleware = next(one for one in manager.app.middleware if isinstance(one, TaskMiddleware))
    manager.asgi_app = ShortAnswers(manager, middleware)  # type: ignore[assignment]


class ShortAnswers:
    """Stands before a manager's own app, to which all is left that is not plainly in order."""

    def __init__(self, manager: StreamableHTTPSessionManager, middleware: TaskMiddleware) -> None:
        self._manager, self._middleware = manager, middleware
        self._app: ASGIApp = manager.asgi_app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        if headers is None or not self._may_be_short(headers):
            await self._app(scope, receive, send)
            return
        read: list[Message] = []
        request = _parsed(await _body(receive, read))
        route = None if request is None else self._route(request, headers)
        if request is None or route is None:
            await self._app(scope, _again(read, receive), send)
            return
        exchange = _Exchange(Request(scope, receive), request, send, silent=self._manager.json_response)
        await exchange.answer(self._manager.app, route, lifespan_state_of(self._manager))

    def _may_be_short(self, headers: Mapping[str, str]) -> bool:
        """By the headers alone, before anything is read."""
        method, length = headers.get(MCP_METHOD_HEADER, ""), headers.get("content-length", "")
        if headers.get(MCP_PROTOCOL_VERSION_HEADER) not in MODERN_PROTOCOL_VERSIONS:
            return False
        if method == CALL:
            needs_none = self._middleware.is_slow(headers.get(MCP_NAME_HEADER))
        else:
            needs_none = self._middleware.needs_no_stream(method, {})
        takes_both = all(media_type in headers.get("accept", "") for media_type in _MEDIA_TYPES)
        is_small = length.isascii() and length.isdigit() and int(length) <= _LONGEST_BODY
        return needs_none and takes_both and is_small

    def _route(self, request: dict[str, Any], headers: Mapping[str, str]) -> InboundModernRoute | None:
        """What the request says of its client; None for one that needs a stream, or is to be refused."""
        method, params = request["method"], request["params"]
        route = classify_inbound_request(request, headers=headers)
        if not isinstance(route, InboundModernRoute) or not self._middleware.needs_no_stream(method, params):
            return None
        return None if method == CALL and self._headers_differ(params, headers) else route

    def _headers_differ(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
        """Whether headers that mirror arguments of a call say something else than these."""
        look_up, arguments = self._manager.app.get_tool_input_schema, params.get("arguments") or {}
        schema = None if look_up is None else look_up(params["name"])
        return (
            not isinstance(arguments, Mapping)
            or schema is None
            or validate_mcp_param_headers(schema, arguments, headers) is not None
        )


class _Exchange:
    """One request and its answer: what the SDK's kernel is given to answer it in (its `DispatchContext`).

    Should somebody tell the client something meanwhile, as a middleware of the server's may, the answer
    becomes a stream after all.
    """

    can_send_request = False

    def __init__(self, request: Request, body: Mapping[str, Any], send: Send, *, silent: bool) -> None:
        self._body, self._send, self._silent = body, send, silent
        self._is_stream = False
        self.transport = TransportContext(
            kind="streamable-http", can_send_request=False, headers=request.headers
        )
        self.request_id = body["id"]
        self.message_metadata = ServerMessageMetadata(request_context=request)
        self.progress_token = progress_token_from_params(body["params"])
        self.cancel_requested = anyio.Event()

    async def answer(self, server: Server[Any], route: InboundModernRoute, lifespan_state: Any) -> None:
        connection = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities
        )
        method, params = self._body["method"], self._body["params"]
        status, outcome = 200, {}
        try:
            outcome["result"] = await serve_one(
                server, self, method, params, connection=connection, lifespan_state=lifespan_state
            )
        except Exception as raised:
            error = modern_error_data(raised)
            status = ERROR_CODE_HTTP_STATUS.get(error.code, status)
            outcome["error"] = error.model_dump(mode="json", by_alias=True, exclude_none=True)
        text = _encoded({"jsonrpc": "2.0", "id": self.request_id, **outcome})
        if self._is_stream:
            await self._send({"type": "http.response.body", "body": _event(text)})
            return
        body = text.encode()
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        if self._silent:
            return
        if not self._is_stream:
            self._is_stream = True
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        news = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": dict(params)})
        await self._send({"type": "http.response.body", "body": _event(_encoded(news)), "more_body": True})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self.progress_token is None:
            return
        told = {
            "progressToken": self.progress_token,
            "progress": progress,
            "total": total,
            "message": message,
        }
        await self.notify(
            "notifications/progress", {key: value for key, value in told.items() if value is not None}
        )


# -- requests --------------------------------------------------------------------------------------


def _headers(scope: Scope) -> dict[str, str] | None:
    """The headers of a POST; None where one comes twice, for then it is not clear which of them counts."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return headers if len(headers) == len(scope["headers"]) else None


async def _body(receive: Receive, read: list[Message]) -> bytes:
    """The body of a request, as far as it comes; what was read is noted."""
    while True:
        message = await receive()
        read.append(message)
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(one.get("body", b"") for one in read)


def _again(read: list[Message], receive: Receive) -> Receive:
    """What was read, once more, and then what comes."""
    messages = iter(read)

    async def receive_again() -> Message:
        message = next(messages, None)
        return await receive() if message is None else message

    return receive_again


def _parsed(body: bytes) -> dict[str, Any] | None:
    """A request as JSON-RPC has it, with parameters; None for anything else."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match request:
        case {"jsonrpc": "2.0", "id": int() | str() as identity, "method": str(), "params": dict()}:
            return None if isinstance(identity, bool) else request
    return None


def _event(text: str) -> bytes:
    return f"event: message\r\ndata: {text}\r\n\r\n".encode()
