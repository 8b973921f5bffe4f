"""JSON as text that every store can keep: strict, and free of what a database refuses."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import InvalidJson

#: How deep values may be nested. Parsers give up at a depth of their own, the MCP clients' among them at 200.
MAX_DEPTH = 100

# An escaped NUL, but not an escaped backslash that is followed by the letters u0000.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
_options: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
_to_json, _to_canonical = (json.JSONEncoder(**_options, sort_keys=sort).encode for sort in (False, True))


def encode(value: Any, what: str = "The value") -> str:
    """`value` as compact JSON text. Keys stay in their order: it says nothing in JSON, but tools see it.

    Raises InvalidJson for what JSON or a database cannot hold: NaN and infinities, lone
    surrogates, NUL characters, what is nested deeper than MAX_DEPTH, and objects that are not JSON.
    """
    try:
        text = _to_json(value)
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidJson(what=what, reason="a string in it has a lone surrogate") from None
    except RecursionError:
        raise InvalidJson(what=what, reason=_TOO_DEEP) from None
    except (TypeError, ValueError) as error:
        raise InvalidJson(what=what, reason=str(error)) from None
    if "\\u0000" in text and _NUL.search(text):
        raise InvalidJson(what=what, reason="a string in it has a NUL character")
    if text.count("[") + text.count("{") > MAX_DEPTH and is_too_deep(value):
        raise InvalidJson(what=what, reason=_TOO_DEEP)
    return text


def canonical(value: Any) -> str:
    """The same text for values that are the same, of a value that `encode` takes."""
    return _to_canonical(value)


def is_too_deep(value: Any) -> bool:
    """Whether plain JSON data is nested deeper than MAX_DEPTH."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list | tuple):
                inner += each
        if not inner:
            return False
        level = inner
    return True


def storable(text: str) -> str:
    """`text` as every store can keep it: other characters stand for lone surrogates and for NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def can_be_kept(value: Any, longest: int) -> bool:
    """Whether every store can keep a value as it is, in at most so many characters."""
    try:
        text = encode(value)
    except InvalidJson:
        return False
    return len(text) <= longest and storable(text) == text


def decode(text: str | None) -> Any:
    """The value behind JSON text that `encode` made; None for None."""
    return None if text is None else json.loads(text)
