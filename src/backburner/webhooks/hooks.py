"""The endpoints of a task: the app's, and one that its caller names, if the operator lets callers do so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from .. import json_text
from ..config import WebhookSettings
from ..config.webhook import unfit_url
from ..errors import WebhookRefused
from ..lifecycle import TERMINAL

_PORTS = {"https": 443, "http": 80}
_LONGEST_URL = 2048


@dataclass(frozen=True, slots=True)
class Hook:
    """An endpoint of a task, which ends it is told of, and how large a result it gets along with that."""

    url: str
    states: tuple[str, ...]
    result_bytes: int = 0


def kept_hooks(settings: WebhookSettings, asked: Any = None) -> str | None:
    """The endpoints of a new task as the store keeps them; None where there are none.

    `asked` is what the caller says: an object with the `url` and, if it likes, with the `states`. Raises
    WebhookRefused.
    """
    hooks = [Hook(settings.url, settings.states, settings.result_bytes)] if settings.url else []
    if asked is not None:
        hooks.append(_asked_for(settings, asked))
    return json_text.encode([asdict(hook) for hook in hooks]) if hooks else None


def read_hooks(kept: str) -> list[Hook]:
    """What `kept_hooks` gave."""
    return [Hook(**values) for values in json_text.decode(kept)]


def check_endpoint(url: str, settings: WebhookSettings) -> None:
    """Raises WebhookRefused for an endpoint that is not the app's own, and that no caller may name."""
    if url == settings.url:
        return
    if not settings.allowed_hosts:
        reason = "this server takes none; its operator can allow hosts in webhook.allowed_hosts"
        raise WebhookRefused(reason=reason)
    if reason := unfit_url(url):
        raise WebhookRefused(reason=reason)
    if urlsplit(url).scheme != "https" and not settings.allow_http:
        raise WebhookRefused(reason="its url must begin with https://")
    host = endpoint_of(url).partition("://")[2]
    if not any(fnmatchcase(host, allowed) for allowed in settings.allowed_hosts):
        reason = f"{host} is none of the hosts that its operator allows: {', '.join(settings.allowed_hosts)}"
        raise WebhookRefused(reason=reason)


def endpoint_of(url: str) -> str:
    """The URL without its path, which is often a secret: to show it, and to tell endpoints apart."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    named = f"[{host}]" if ":" in host else host
    port = parts.port if parts.port != _PORTS[parts.scheme] else None
    return f"{parts.scheme}://{named}" + ("" if port is None else f":{port}")


def _asked_for(settings: WebhookSettings, asked: Any) -> Hook:
    if (
        not isinstance(asked, Mapping)
        or not isinstance(asked.get("url"), str)
        or set(asked) - {"url", "states"}
    ):
        raise WebhookRefused(reason='it must be an object such as {"url": "https://lab.example/hook"}')
    url, states = asked["url"], asked.get("states", sorted(TERMINAL))
    if len(url) > _LONGEST_URL:
        raise WebhookRefused(reason=f"its url is longer than {_LONGEST_URL} characters")
    check_endpoint(url, settings)
    if not isinstance(states, list | tuple) or not states or not all(state in TERMINAL for state in states):
        raise WebhookRefused(reason=f"its states must be a list of some of {', '.join(sorted(TERMINAL))}")
    return Hook(url, tuple(states), settings.result_bytes)
