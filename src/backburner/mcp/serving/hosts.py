"""Which Host names a server answers to, and the address that its links have for who used one of them.

A web page must not reach us through a name that it has made to point here (DNS rebinding), so only known
names are answered.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ...config import HttpSettings
from ...errors import ConfigError
from ..links import BASE_URL

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Addresses that stand for every one of this machine.
EVERYWHERE = ("0.0.0.0", "::")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_REFUSAL = (
    "This server does not answer to the Host name of the request. "
    "Its operator can add it to http.allowed_hosts, or set http.public_url.\n"
)


class Host(NamedTuple):
    """A name, or an address in its shortest form, and a port if one is given; in lower case."""

    name: str
    port: str = ""

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port}" if self.port else name


@lru_cache(maxsize=64)  # clients name the same few hosts with each request
def parse_host(text: str) -> Host | None:
    """What a Host header, or a setting, names; None if it is neither a name nor an address."""
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


class Hosts:
    """The names that a server bound to an address answers to. Raises ConfigError for a name that is none.

    One that is bound to every address also answers to the machine's own name, and to the address at which a
    request reached it.
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
        reason = f"{text!r} is no name of a host; write it as in lab.example or lab.example:8765"
        raise ConfigError(setting="http.allowed_hosts", reason=reason)
    return host


class HostAndOrigin:
    """Turns away requests for another host, or from a page of another."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
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
        return None  # it is no URL
