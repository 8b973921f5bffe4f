"""Webhook sender: leases due deliveries, signs them and posts them."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import logging
import random
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from ..errors import WebhookRefused
from ..observability.logging import about
from ..settings import WebhookSettings
from ..store.webhooks import Delivery, Outbox, check_endpoint, signed_headers
from ..version import VERSION

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: IPv6 addresses that stand for IPv4 ones at a gateway.
#: The beginning of an ISATAP interface identifier (RFC 5214), but for the bits of its scope.
_ISATAP, _ISATAP_MASK = 0x00005EFE, 0xFCFFFFFF
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of an endpoint; `retry_after` is its header of that name."""

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
        """Close the connection when the time is over."""
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
    """Return whether an address is public, also if it embeds another one."""
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
    """Limit the whole exchange: a socket's timeout is per read, so a slow sender would never hit it."""
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


log = logging.getLogger("backburner.webhooks")

#: So many endpoints are told at the same time; the messages for one are sent one after another.
_AT_ONCE = 8
_LONGEST_PAUSE_S = 3600.0
#: As Standard Webhooks recommends: an endpoint answers within 15 s.
_TIMEOUT_S = 15.0
#: An endpoint that was down for a day gets no more tries.
_MAX_ATTEMPTS, _MAX_AGE_S = 20, 86_400.0
#: How long an endpoint that does not answer is left alone by all its messages.
_REST_S = 30.0
#: A lease ends so long after the answer is due at the latest.
_MARGIN_S = 10.0
#: These may go well the next time: a time-out, too many requests, and all trouble of the endpoint's own.
_TRY_AGAIN = frozenset({408, 425, 429})


class WebhookSender:
    """Delivers by the settings in force: also whom callers may have told is looked up again with each try."""

    def __init__(self, outbox: Outbox, settings: WebhookSettings) -> None:
        self._outbox = outbox
        self._settings = settings

    def send_due(self) -> None:
        """One round: try once all that is due. Returns when each endpoint has answered, or has had its time.

        Raises StoreError.
        """
        due = self._outbox.due_deliveries()
        if not due:
            return
        from concurrent.futures import ThreadPoolExecutor

        by_endpoint = defaultdict(list)
        for delivery in due:
            by_endpoint[delivery.endpoint].append(delivery)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="backburner-webhook") as pool:
            list(pool.map(self._send_all, by_endpoint.values()))

    def _send_all(self, deliveries: list[Delivery]) -> None:
        """Send to one endpoint until it does not answer: then none of the others would arrive either."""
        for delivery in deliveries:
            leased = self._outbox.lease_delivery(delivery, _TIMEOUT_S + _MARGIN_S)
            if leased and not self._send(delivery):
                self._outbox.put_off_deliveries(delivery.endpoint, min(_REST_S, 6 * self._settings.retry_s))
                return

    def _send(self, delivery: Delivery) -> bool:
        """Try once, and note what became of it; whether there was an answer, or will never be one."""
        try:
            answer = self._post(delivery)
        except WebhookRefused as error:
            self._outbox.not_delivered(delivery, error.details["reason"], None)
            return True
        except NoAnswer as error:
            self._try_again(delivery, str(error))
            return False
        if 200 <= answer.status < 300:
            self._outbox.delivered(delivery)
        elif answer.status >= 500 or answer.status in _TRY_AGAIN:
            self._try_again(delivery, f"it answered {answer.status}", _asked_pause_s(answer.retry_after))
        else:
            redirect = "; redirects are not followed" if 300 <= answer.status < 400 else ""
            self._outbox.not_delivered(delivery, f"it answered {answer.status}{redirect}", None)
        return True

    def _post(self, delivery: Delivery) -> Answer:
        settings, body = self._settings, delivery.body.encode()
        check_endpoint(delivery.url, settings)
        headers = {
            "content-type": "application/json",
            "user-agent": f"backburner/{VERSION}",
            **signed_headers(settings.keys, delivery.delivery_id, int(time.time()), body),
        }
        public = delivery.url != settings.url and not settings.allow_private
        return post(delivery.url, body, headers, timeout_s=_TIMEOUT_S, public=public)

    def _try_again(self, delivery: Delivery, error: str, asked_s: float = 0.0) -> None:
        tried, settings = delivery.attempts + 1, self._settings
        pause_s = min(_LONGEST_PAUSE_S, settings.retry_s * 3 ** min(tried - 1, 20))
        pause_s = max(pause_s * random.uniform(0.5, 1.0), min(asked_s, _LONGEST_PAUSE_S))
        age_s = time.time() - delivery.created_at / 1000
        over = tried >= _MAX_ATTEMPTS or age_s + pause_s > _MAX_AGE_S
        if over:
            log.warning(
                "The webhook %s to %s is given up: %s",
                delivery.delivery_id,
                delivery.endpoint,
                error,
                extra=about(delivery.task_id),
            )
        self._outbox.not_delivered(delivery, error, None if over else pause_s)


def _asked_pause_s(retry_after: str | None) -> float:
    """Parse a Retry-After header, in seconds or as a date."""
    if retry_after is None:
        return 0.0
    try:
        return float(int(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
