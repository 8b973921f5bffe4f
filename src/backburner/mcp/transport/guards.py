"""HTTP guards: allowed host names, and limits on connections, idle time and slow bodies."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import ConfigError
from ...settings import HttpSettings
from ..results import BASE_URL

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Addresses that bind to all interfaces.
EVERYWHERE = ("0.0.0.0", "::")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_REFUSAL = (
    "This server does not answer to the Host name of the request. "
    "Its operator can add it to http.allowed_hosts, or set http.public_url.\n"
)


class Host(NamedTuple):
    """A host name or compressed address, and a port if given, in lower case."""

    name: str
    port: str = ""

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port}" if self.port else name


@lru_cache(maxsize=64)  # clients name the same few hosts with each request
def parse_host(text: str) -> Host | None:
    """Parse a Host header or setting; None if it is neither a name nor an address."""
    text = text.lower()
    if text.startswith("["):
        name, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    elif text.count(":") == 1:
        name, _, port = text.partition(":")
    else:
        name, port = text, ""
    name = name.removesuffix(".")
    if port and not (port.isascii() and port.isdigit()):
        return None
    with suppress(ValueError):
        return Host(ip_address(name).compressed, port)
    return Host(name, port) if _NAME.fullmatch(name) else None


class AllowedHosts:
    """Host names that a server answers to. Raises ConfigError for an invalid name.

    Bound to all interfaces, it also answers to the machine's name and to the address of the request.
    """

    def __init__(self, bound: str, settings: HttpSettings) -> None:
        own = parse_host(bound)
        self._everywhere = own is not None and own.name in EVERYWHERE
        self._known = [Host(name) for name in _LOOPBACK]
        self._known += [] if own is None or self._everywhere else [own]
        if self._everywhere and (machine := parse_host(socket.gethostname())):
            self._known.append(machine)
        public = parse_host(urlsplit(settings.public_url).hostname or "")
        self._known += [] if public is None else [public]
        self._known += map(_configured, settings.allowed_hosts)

    def __str__(self) -> str:
        names = [str(host) for host in dict.fromkeys(self._known)]
        return ", ".join([*names, *(["the addresses of this machine"] if self._everywhere else [])])

    def answer_to(self, asked: Host | None, scope: Scope) -> bool:
        if asked is None:
            return False
        if asked in self._known or Host(asked.name) in self._known:
            return True
        return self._everywhere and asked.name == (scope.get("server") or ("",))[0]


def _configured(text: str) -> Host:
    host = parse_host(text)
    if host is None:
        reason = f"{text!r} is not a host name; use a form such as lab.example or lab.example:8765"
        raise ConfigError(setting="http.allowed_hosts", reason=reason)
    return host


class HostOriginGuard:
    """Refuses requests for other hosts, or from pages of other origins."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host, origin = parse_host(headers.get("host", "")), headers.get("origin")
        if not self._hosts.answer_to(host, scope):
            response = PlainTextResponse(_REFUSAL, status_code=421)
        elif origin is not None and not self._hosts.answer_to(_host_of(origin), scope):
            response = PlainTextResponse("Invalid Origin header\n", status_code=403)
        else:
            BASE_URL.set(f"{scope['scheme']}://{host}{scope.get('root_path', '')}")
            await self._app(scope, receive, send)
            return
        await response(scope, receive, send)


def _host_of(origin: str) -> Host | None:
    try:
        return parse_host(urlsplit(origin).netloc)
    except ValueError:
        return None


_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
)
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_LONGEST_HEAD = 65_536
#: Time limit for a request body, and the rate at which received bytes extend it.
_LONGEST_WAIT_S, _SLOWEST_BYTES_PER_S = 20.0, 1024
_TOO_SLOW = "The body of the request came too slowly\n"


def bounded_protocol(protocol: type[asyncio.Protocol], most: int, idle_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit on connections and on the time without a request.

    Uvicorn's own `limit_concurrency` refuses requests of all clients once too many connections are open, and
    its keep-alive timeout begins after the first response. Event streams and held calls count as busy.
    """

    class Bounded(protocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(_TOO_MANY)
                transport.close()
            else:
                self._busy_at = self.loop.time()
                self.loop.call_later(idle_s, self._close_if_idle)

        def on_response_complete(self) -> None:
            self._busy_at = self.loop.time()
            super().on_response_complete()

        def _close_if_idle(self) -> None:
            now = self.loop.time()
            if self.cycle is not None and not self.cycle.response_complete:
                self._busy_at = now
            left_s = self._busy_at + idle_s - now
            if self.transport.is_closing():
                return
            if left_s <= 0:
                self.transport.close()
            else:
                self.loop.call_later(left_s, self._close_if_idle)

    return _with_limited_heads(Bounded) if hasattr(protocol, "on_headers_complete") else Bounded


def _with_limited_heads(protocol: Any) -> type[asyncio.Protocol]:
    """Return uvicorn's httptools protocol with the header limit and stripping that its h11 protocol has."""

    class LimitedHeads(protocol):  # type: ignore[misc]
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

    return LimitedHeads


class BodyTimeout:
    """Answers 408 to a request whose body arrives too slowly; only time waiting for it counts."""

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
    """The body of one request, and whether an answer has begun."""

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
