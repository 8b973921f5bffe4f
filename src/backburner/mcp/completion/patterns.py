"""Texts that match a regular expression, for people to see what is wanted. All of it takes bounded time."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import Any

import regex

from ..sdk import parse_pattern
from .pattern_texts import MOST_CHARS, texts_of

#: How long one match may take. A pattern that needs longer, as some do that backtrack, is not used.
_MATCH_S = 0.005
#: A pattern that asks for more characters than this costs too much to compile.
_WIDEST = 10_000

#: What people write more often than what can be made of the same pattern.
_SAMPLES = (
    "snake_case", "example_name", "example", "Example", "EXAMPLE", "example-name", "example1", "1", "42",
    "2026", "1.0", "1.2.3", "v1.2.3", "2026-01-31", "12:30", "2026-01-31T12:30:00Z", "user@example.com",
    "example.com", "https://example.com/", "192.0.2.1", "/path/to/file", "file.txt", "+15550100", "#336699",
    "123e4567-e89b-12d3-a456-426614174000",
)  # fmt: skip


def matches(pattern: str, text: str) -> bool:
    """Whether `re.search` finds the pattern. Not when that takes too long, or it is no pattern."""
    if _steps(pattern) is None:
        return False
    try:
        return regex.search(pattern, text, timeout=_MATCH_S, concurrent=True) is not None
    except (TimeoutError, regex.error, RecursionError, OverflowError):
        return False


@lru_cache(maxsize=512)
def pattern_examples(
    pattern: str, *, min_length: int = 0, max_length: int | None = None, limit: int = 10
) -> tuple[str, ...]:
    """Up to `limit` different texts that match and have a fitting length; maybe none for odd patterns."""
    steps = _steps(pattern)
    if steps is None:
        return ()
    found: dict[str, None] = {}
    longest = MOST_CHARS if max_length is None else min(max_length, MOST_CHARS)
    for text in chain(_SAMPLES, texts_of(steps, min_length)):
        if len(found) == limit:
            break
        if min_length <= len(text) <= longest and text not in found and matches(pattern, text):
            found[text] = None
    return tuple(found)


def continued(pattern: str, partial: str, examples: tuple[str, ...]) -> list[str]:
    """Texts that begin with `partial` and match: itself, and itself with the rest of each example."""
    tries = dict.fromkeys([partial, *(partial + example[len(partial) :] for example in examples)])
    return [text for text in tries if len(text) <= MOST_CHARS and matches(pattern, text)]


@lru_cache(maxsize=512)
def _steps(pattern: str) -> Any:
    """The steps of a pattern; None for what is no pattern, or one that only a very long text can match."""
    try:
        parsed = parse_pattern(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    return parsed.steps if parsed.shortest <= _WIDEST else None
