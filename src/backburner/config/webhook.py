"""The settings of webhooks: who is told that a task is over, and which endpoints a caller may name."""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..lifecycle import TERMINAL, State
from .groups import setting

#: By Standard Webhooks: how a secret begins, and how many bytes it may have.
_SECRET_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)
_ENDS = tuple(state for state in State if state in TERMINAL)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Who is told that a task is over; notifications.md says how, and what arrives."""

    url: str = setting(
        "", "The endpoint that is told of each task that ends", example='"https://lab.example/hook"'
    )
    secret: str = setting(
        "",
        "What messages are signed with: `whsec_` and 24 to 64 random bytes in base64. With a blank between"
        " them, two sign each message, while receivers change over",
    )
    states: tuple[str, ...] = setting(_ENDS, "Which ends `url` is told of", example='["failed", "timed_out"]')
    result_bytes: int = setting(0, "The largest result, as JSON, that is sent along; 0: none is")
    timeout_s: float = setting(15.0, "How long an endpoint has to answer")
    retry_s: float = setting(
        5.0, "When the second try is made, about; each further pause is three times as long, up to an hour"
    )
    max_attempts: int = setting(20, "How often one message is tried")
    max_age_s: float = setting(86400.0, "When a message is given up that could not be delivered")
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Hosts that a caller may name as endpoints of its own tasks, with any unusual port, or patterns"
        " (default: callers may name none)",
        example='["hooks.example.com", "*.lab.example:8443"]',
    )
    allow_http: bool = setting(
        False, "Whether an endpoint that a caller names may be one without TLS", example="true"
    )
    allow_private: bool = setting(
        False,
        "Whether an endpoint that a caller names may be in a private network or on this host",
        example="true",
    )

    @property
    def is_used(self) -> bool:
        """Whether anybody may ever have to be told."""
        return bool(self.url or self.allowed_hosts)

    @property
    def keys(self) -> list[bytes]:
        """What to sign with. The first is the one in use."""
        return [_key(text) for text in self.secret.split()]

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", tuple(self.states))
        object.__setattr__(self, "allowed_hosts", tuple(host.lower() for host in self.allowed_hosts))
        if unknown := set(self.states) - set(_ENDS):
            reason = f"{sorted(unknown)[0]!r} is no end of a task; the ends are {', '.join(_ENDS)}"
            raise ConfigError(setting="webhook.states", reason=reason)
        if self.url and (reason := unfit_url(self.url)):
            raise ConfigError(setting="webhook.url", reason=reason)
        if self.is_used and not self.secret:
            raise ConfigError(setting="webhook.secret", reason=f"messages must be signed; {_example()}")
        for text in self.secret.split():
            _key(text)


def unfit_url(url: str) -> str:
    """Why a URL can be no endpoint; empty if it can. The URL itself, which may be a secret, is not shown."""
    try:
        parts = urlsplit(url)
        named, _ = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https") or not named:
        return "it is no address of an endpoint; write for example https://lab.example/hook"
    if parts.username is not None:
        return "a user and a password in it would not be sent; the signature says who sends"
    return (
        "" if url.isascii() and url.isprintable() and " " not in url else "it has characters that no URL has"
    )


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_SECRET_PREFIX) or len(key) not in _SECRET_BYTES:
        raise ConfigError(setting="webhook.secret", reason=f"it is no secret for webhooks; {_example()}")
    return key


def _example() -> str:
    made = base64.b64encode(secrets.token_bytes(32)).decode()
    return f"write whsec_ and 24 to 64 random bytes in base64, such as these new ones: {_SECRET_PREFIX}{made}"
