"""JSON as text that every store can keep: strict, canonical, and free of what a database refuses."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import InvalidJson

# An escaped NUL, but not an escaped backslash that is followed by the letters u0000.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def encode(value: Any, what: str = "The value") -> str:
    """`value` as compact JSON text with sorted keys.

    Raises InvalidJson for what JSON or a database cannot hold: NaN and infinities, lone
    surrogates, NUL characters, and objects that are not JSON.
    """
    try:
        text = _to_json(value)
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidJson(what=what, reason="a string in it has a lone surrogate") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJson(what=what, reason=str(error)) from None
    if "\\u0000" in text and _NUL.search(text):
        raise InvalidJson(what=what, reason="a string in it has a NUL character")
    return text


def storable(text: str) -> str:
    """`text` as every store can keep it: other characters stand for lone surrogates and for NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def decode(text: str | None) -> Any:
    """The value behind JSON text that `encode` made; None for None."""
    return None if text is None else json.loads(text)
