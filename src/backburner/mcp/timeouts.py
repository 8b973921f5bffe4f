"""How clients say that their own timer ran out, and which of them say nothing. The one place for both."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

from .request import RequestContext, client_of, is_modern

#: The `reason` of a `notifications/cancelled` that a timer sent: whose it is, and its words.
_WORDS: tuple[tuple[str, str], ...] = (
    ("TypeScript SDK 1 and 2, Kotlin SDK", r"(.*: )?(Request timed out|Maximum total timeout exceeded)"),
    ("AbortSignal.timeout in any JavaScript host", r"TimeoutError: .*"),
    ("Python SDK 2, FastMCP 4", r"timed out after \S+s"),
    ("Rust SDK (rmcp)", r"request timeout"),
    ("Goose, before it left that to the Rust SDK", r"timed out"),
    ("Go SDK", r"(.*: )?context deadline exceeded"),
    ("LangChain4j", r"timeout"),
)
_TIMER = re.compile("|".join(f"(?:{words})" for _, words in _WORDS), re.IGNORECASE | re.DOTALL)

#: Clients that let a call go without a word, by name: they look as if they still waited.
_SILENT = (
    "mcp",  # Python SDK 1; its successor has the same name, and says it
    "codex*",
)
#: The same call of such a client so soon after the first is one more of it: no timer is shorter.
_FAN_OUT_S = 3.0
#: A stream that is closed sooner was closed by somebody, and not by a timer.
_SHORTEST_TIMER_S = 4.0
#: So long after a request was cut off its `notifications/cancelled` is still expected.
LATE_S = 5.0


def timer_ran_out(reason: Any) -> bool:
    """Whether the reason of a `notifications/cancelled` says that the client's own timer ran out."""
    return isinstance(reason, str) and _TIMER.fullmatch(reason.strip()) is not None


def may_be_timer(ctx: RequestContext, waited_s: float) -> bool:
    """Whether a timer may have cut a request off without a word: at 2026-07-28 it closes the stream."""
    return is_modern(ctx) and ctx.request is not None and waited_s >= _SHORTEST_TIMER_S


def may_be_repeated(ctx: RequestContext, held_s: float) -> bool:
    """Whether the same call, on a connection where it is held since then, may be the first one, given up."""
    name = client_of(ctx)[0].casefold()
    silent = not is_modern(ctx) and any(fnmatchcase(name, pattern) for pattern in _SILENT)
    return silent and held_s >= _FAN_OUT_S
