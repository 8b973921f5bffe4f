"""How long a client waits for the answer to a call, by its name and version.

A limit that is taken too long makes calls fail; one that is taken too short costs a second call.
So where reports disagree, the shorter one stands here.
"""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase

from ..config import Settings
from .request import RequestContext, client_of

#: The client waits for as long as it takes.
FOREVER = None

#: How long to hold calls of a client of whom nothing is known.
_UNKNOWN_CLIENT_S = 50.0
#: What the Python SDK calls itself, and so any program that is made with it.
_SDK_NAME = "mcp"
#: So much of a client's limit may pass before the handle must be on its way.
_MARGIN = 0.8

#: The limit of each client in seconds: name pattern, first version it holds for, limit. The last match wins.
_LIMITS: tuple[tuple[str, tuple[int, ...], float | None], ...] = (
    # The OpenAI Agents SDK sends this name too: that one waits 5 s.
    (_SDK_NAME, (), 5),
    ("openai-mcp*", (), 60),
    ("claude-ai", (), 60),  # also the desktop app, some versions of which wait for 240 s
    ("claude-code*", (), 60),  # the terminal waits for ever, the desktop app for 60 s
    ("codex-mcp-client*", (), 60),
    ("cursor*", (), 60),
    ("cline*", (), 60),
    ("roo*", (), 60),
    ("windsurf*", (), 60),
    ("zed*", (), 60),
    ("goose*", (), 300),
    ("gemini-cli*", (), 600),
    ("*inspector*", (), 10),
    ("*inspector*", (0, 17), 300),
    ("visual studio code*", (), FOREVER),
    ("backburner*", (), FOREVER),
)


def patience_s(client_name: str, client_version: str, settings: Settings) -> float | None:
    """How long to hold a call before the client must have something in hand; None: to its end.

    First what `client_patience` says of the client, then `patience_s` where it is set, then what
    is known of clients by that name.
    """
    chosen_s = _chosen_s(client_name, client_version, settings)
    if chosen_s is None:
        chosen_s = settings.mcp.patience_s
    if chosen_s is None:
        chosen_s = _known_s(client_name, client_version)
    if chosen_s is None:
        return _UNKNOWN_CLIENT_S
    return FOREVER if chosen_s == math.inf else chosen_s


def gives_up(client_name: str, client_version: str, settings: Settings) -> bool:
    """Whether a client by that name is known to give up on a call that takes longer than its patience.

    Of others that is only feared. The SDK's own name says nothing of the program that has it.
    """
    known_s = _chosen_s(client_name, client_version, settings)
    if known_s is None and client_name != _SDK_NAME:
        known_s = _known_s(client_name, client_version)
    return known_s is not None and known_s != math.inf


def _chosen_s(name: str, version: str, settings: Settings) -> float | None:
    """What the settings say of clients by that name; None: nothing."""
    for client, chosen in settings.mcp.client_patience.items():
        pattern, _, version_pattern = client.partition("@")
        if fnmatchcase(name.casefold(), pattern.casefold()) and fnmatchcase(version, version_pattern or "*"):
            return math.inf if isinstance(chosen, str) else chosen
    return None


def _known_s(name: str, version: str) -> float | None:
    """What is known of clients by that name; None: nothing."""
    known_s: float | None = None
    for pattern, since, limit in _LIMITS:
        if fnmatchcase(name.casefold(), pattern) and _numbers(version) >= since:
            known_s = math.inf if limit is None else limit * _MARGIN
    return known_s


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def client_patience_s(ctx: RequestContext, settings: Settings) -> float | None:
    """How long the client of a request waits for its answer; None: for as long as it takes."""
    return patience_s(*client_of(ctx), settings)


def client_gives_up(ctx: RequestContext, settings: Settings) -> bool:
    """Whether the client of a request is known to give up on a call when its patience is over."""
    return gives_up(*client_of(ctx), settings)
