"""How long a client waits for the answer to a call, by its name and version.

A limit that is taken too long makes calls fail; one that is taken too short costs a second call.
So where reports disagree, the shorter one stands here.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from ..config import Settings
from .request import RequestContext

#: The client waits for as long as it takes.
FOREVER = None

#: How long to hold calls of a client of whom nothing is known.
_UNKNOWN_CLIENT_S = 50.0
#: So much of a client's limit may pass before the handle must be on its way.
_MARGIN = 0.8

#: The limit of each client in seconds: name pattern, first version it holds for, limit. The last match wins.
_LIMITS: tuple[tuple[str, tuple[int, ...], float | None], ...] = (
    # The Python SDK's own name, which the OpenAI Agents SDK sends too: that one waits 5 s.
    ("mcp", (), 5),
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
    name, version = client_name.casefold(), client_version
    for client, chosen in settings.mcp.client_patience.items():
        pattern, _, version_pattern = client.partition("@")
        if fnmatchcase(name, pattern.casefold()) and fnmatchcase(version, version_pattern or "*"):
            return FOREVER if isinstance(chosen, str) else chosen
    if settings.mcp.patience_s is not None:
        return settings.mcp.patience_s
    patience: float | None = _UNKNOWN_CLIENT_S
    for pattern, since, limit in _LIMITS:
        if fnmatchcase(name, pattern) and _numbers(version) >= since:
            patience = None if limit is None else limit * _MARGIN
    return patience


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def client_patience_s(ctx: RequestContext, settings: Settings) -> float | None:
    """How long the client of a request waits for its answer; None: for as long as it takes."""
    client = ctx.session.client_params.client_info if ctx.session.client_params else None
    return patience_s(client.name if client else "", client.version if client else "", settings)
