"""What a JSON value looks like, in a line: keys, kinds and lengths, for whoever is to read parts of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

_MOST_CHARS = 1_000
_DEEPEST, _MOST_KEYS, _LONGEST_KEY = 5, 30, 60
#: A text that is longer says how long it is.
_SHORT_TEXT = 80


def shape(value: Any) -> str:
    """Such as `{total: number, items: [5000 × {id: number, name: text}]}`; of a list, its first item tells.

    It is never longer than a thousand characters: what lies deep is left out first.
    """
    if isinstance(value, str):
        return f"text, {value.count(chr(10)) + 1} lines, {len(value)} characters"
    for depth in range(_DEEPEST, 0, -1):
        shown = _shown(value, depth)
        if len(shown) <= _MOST_CHARS:
            return shown
    return shown[: _MOST_CHARS - 1] + "…"


def _shown(value: Any, depth: int) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text" if len(value) <= _SHORT_TEXT else f"text of {len(value)} characters"
        case Mapping():
            return "{" + ", ".join(_entries(value, depth)) + "}"
        case list():
            of_what = f" × {_shown(value[0], depth - 1) if depth > 1 else '…'}" if value else " items"
            return f"[{len(value)}{of_what}]"
    return "?"


def _entries(value: Mapping[str, Any], depth: int) -> Iterable[str]:
    if depth == 1:
        yield f"{len(value)} keys"
        return
    for key, part in islice(value.items(), _MOST_KEYS):
        yield f"{_key(key)}: {_shown(part, depth - 1)}"
    if len(value) > _MOST_KEYS:
        yield f"… {len(value) - _MOST_KEYS} more keys"


def _key(key: str) -> str:
    shown = key if key.isidentifier() else json.dumps(key, ensure_ascii=False)
    return shown if len(shown) <= _LONGEST_KEY else shown[:_LONGEST_KEY] + "…"
