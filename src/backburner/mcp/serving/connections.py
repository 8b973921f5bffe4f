"""Bounds of an HTTP server: number of connections, idle time, and time to wait for a body."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
)
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_LONGEST_HEAD = 65_536
#: The body of a request may be waited for so long in all, and for a second more for each so many bytes of it.
_LONGEST_WAIT_S, _SLOWEST_BYTES_PER_S = 20.0, 1024
_TOO_SLOW = "The body of the request came too slowly\n"


def _with_short_heads(protocol: Any) -> type[asyncio.Protocol]:
    """Uvicorn's protocol by httptools, with what its other one has by itself.

    Headers have a bound, and blanks around a value are no part of it.
    """

    class ShortHeads(protocol):  # type: ignore[misc]
        _head_bytes = 0

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if self._head_bytes > _LONGEST_HEAD and not self.transport.is_closing():
                self.transport.write(_TOO_LONG)
                self.transport.close()

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value.strip(b" \t"))

        def on_headers_complete(self) -> None:
            self._head_bytes = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head_bytes = 0
            super().on_body(body)

    return ShortHeads


class Connections:
    """Turns away what is over the number, and ends a connection that has asked for nothing for so long.

    A connection with a request that is being answered is busy, however long that takes: event
    streams and held calls stay. The server itself ends one only after an answer, and not one
    that never asks.
    """

    def __init__(self, most: int, idle_s: float) -> None:
        self._most = most
        self._idle_s = idle_s
        self._open: dict[Any, asyncio.Transport] = {}
        self._busy: dict[Any, int] = {}
        self._answered_at: dict[Any, float] = {}

    def bounding(self, protocol: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
        """The server's protocol, with these bounds around the connections that it makes."""
        connections = self

        class Bounded(protocol):  # type: ignore[misc, valid-type]
            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                connections.opened(transport)

        return _with_short_heads(Bounded) if hasattr(protocol, "on_headers_complete") else Bounded

    def counting(self, app: ASGIApp) -> ASGIApp:
        """The same app; while it answers a request, the connection that this came by is busy.

        What changes the client's address, as proxies' headers do, belongs inside of it.
        """

        async def count_and_serve(scope: Scope, receive: Receive, send: Send) -> None:
            client = tuple(scope.get("client") or ())
            self._busy[client] = self._busy.get(client, 0) + 1
            try:
                await app(scope, receive, send)
            finally:
                self._busy[client] -= 1
                if not self._busy[client]:
                    del self._busy[client]
                    if client in self._open:
                        self._answered_at[client] = asyncio.get_running_loop().time()

        return count_and_serve

    def opened(self, transport: asyncio.Transport) -> None:
        """A client has connected."""
        if len(self._open) >= self._most:
            self._open = {key: one for key, one in self._open.items() if not one.is_closing()}
        if len(self._open) >= self._most:
            transport.write(_REFUSAL)
            transport.close()
            return
        client = tuple(transport.get_extra_info("peername") or ())[:2]
        self._open[client] = transport
        self._answered_at.pop(client, None)
        self._look_in(self._idle_s, client, transport)

    def _look_in(self, seconds: float, client: Any, transport: asyncio.Transport) -> None:
        asyncio.get_running_loop().call_later(seconds, self._end_if_idle, client, transport)

    def _end_if_idle(self, client: Any, transport: asyncio.Transport) -> None:
        if not transport.is_closing():
            idle_s = asyncio.get_running_loop().time() - self._answered_at.get(client, float("-inf"))
            if client in self._busy or idle_s < self._idle_s:
                left_s = self._idle_s if client in self._busy else self._idle_s - idle_s
                self._look_in(left_s, client, transport)
                return
            transport.close()
        if self._open.get(client) is transport:
            del self._open[client]
            self._answered_at.pop(client, None)


class BodyDeadline:
    """Answers 408 to a request whose body comes too slowly. Only time spent waiting for the body counts."""

    def __init__(self, app: ASGIApp, idle_s: float) -> None:
        self._app, self._wait_s = app, min(idle_s, _LONGEST_WAIT_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, send, self._wait_s)
        try:
            await self._app(scope, body.receive, body.send)
        except ClientDisconnect:
            if not body.too_slow:
                raise


class _Body:
    """One request: its body on the way in, and whether an answer has begun."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, wait_s: float) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._left_s = wait_s
        self._is_read = self._is_answered = False
        self.too_slow = False

    async def receive(self) -> Message:
        if self._is_read:
            return await self._receive()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._left_s):
                message = await self._receive()
        except TimeoutError:
            await self._refuse()
            return {"type": "http.disconnect"}
        self._left_s += len(message.get("body", b"")) / _SLOWEST_BYTES_PER_S - (loop.time() - began)
        self._is_read = not message.get("more_body", False)
        return message

    async def _refuse(self) -> None:
        self.too_slow = True
        if not self._is_answered:
            refusal = PlainTextResponse(_TOO_SLOW, 408, {"Connection": "close"})
            await refusal(self._scope, self._receive, self._send)

    async def send(self, message: Message) -> None:
        self._is_answered = True
        if not self.too_slow:
            await self._send(message)
