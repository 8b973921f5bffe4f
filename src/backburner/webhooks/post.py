"""One POST to an endpoint: in bounded time, without redirects, and to public addresses alone if it must be.

An address is looked at when the connection is made, so a name that leads elsewhere by then is no way around.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import WebhookRefused

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: IPv6 addresses that stand for IPv4 ones at a gateway.
#: The beginning of an ISATAP interface identifier (RFC 5214), but for the bits of its scope.
_ISATAP, _ISATAP_MASK = 0x00005EFE, 0xFCFFFFFF
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint answered; `retry_after` is its header of that name."""

    status: int
    retry_after: str | None = None


class NoAnswer(Exception):
    """The endpoint cannot be reached, or did not answer in time; says why."""


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float, public: bool) -> Answer:
    """Send a body and wait for the answer, of which only the head is read.

    `public` keeps it from private networks and this host. Raises WebhookRefused for an address there, and
    NoAnswer.
    """
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = _Connection(parts.hostname or "", parts.port, parts.scheme == "https", timeout_s, public)
    try:
        with _ended_after(timeout_s, connection.end):
            connection.request("POST", path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers.get("retry-after"))
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        if connection.is_late:
            raise NoAnswer(f"no answer within {timeout_s:g} s") from error
        raise NoAnswer(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection that looks at the address that a name leads to, and that can be ended from outside."""

    def __init__(self, host: str, port: int | None, tls: bool, timeout_s: float, public: bool) -> None:
        self.default_port = 443 if tls else 80
        super().__init__(host, port, timeout=timeout_s)
        self._tls, self._public = tls, public
        self._deadline = time.monotonic() + timeout_s
        self.is_late = False

    def connect(self) -> None:
        self.sock = self._reached()
        if self._tls:
            context = ssl.create_default_context()
            # The handshake comes later, so that `end` finds the socket that waits for it.
            self.sock = wrapped = context.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            wrapped.do_handshake()

    def end(self) -> None:
        """The time is over: whoever waits for the endpoint is told that it hung up."""
        self.is_late = True
        if self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def _reached(self) -> socket.socket:
        """A connection to the first address of the host that may be reached, and that answers."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        addresses = [str(where[0]) for *_, where in found if not self._public or is_public(str(where[0]))]
        if not addresses:
            reason = f"{self.host} is in a private network or on this host (webhook.allow_private)"
            raise WebhookRefused(reason=reason)
        failure: OSError = TimeoutError("timed out")
        for address in addresses:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                return socket.create_connection((address, self.port), timeout=left_s)
            except OSError as error:
                failure = error
        raise failure


def is_public(text: str) -> bool:
    """Whether an address is one of the public network, also where it stands for another one."""
    return all(
        one.is_global and not (one.is_multicast or one.is_reserved or _is_within_a_site(one))
        for one in _meant(ipaddress.ip_address(text.partition("%")[0]))
    )


def _is_within_a_site(address: _Address) -> bool:
    """Return whether an address is site-local (`fec0::/10`) or of ISATAP, whatever IPv4 address it holds."""
    if isinstance(address, ipaddress.IPv4Address):
        return False
    return address.is_site_local or int(address) >> 32 & _ISATAP_MASK == _ISATAP


def _meant(address: _Address) -> Iterator[_Address]:
    """The address that a packet to this one ends up at, where it may be an IPv4 one in disguise."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address.ipv4_mapped is None and address not in _NAT64:
        yield address
    yield from (one for one in inner if one is not None)


@contextlib.contextmanager
def _ended_after(seconds: float, end: Callable[[], None]) -> Iterator[None]:
    """The timeout of a socket is for each read: one who sends a byte now and then would never be over."""
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
