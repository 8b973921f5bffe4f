"""Strict JSON text that every store accepts, and helpers for JSON shapes and paths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ..errors import InvalidJson, NoSuchPart

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
    """Return whether plain JSON data is nested deeper than MAX_DEPTH."""
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
    """Return whether every store accepts a value unchanged, in at most `longest` characters."""
    try:
        text = encode(value)
    except InvalidJson:
        return False
    return len(text) <= longest and storable(text) == text


def decode(text: str | None) -> Any:
    """The value behind JSON text that `encode` made; None for None."""
    return None if text is None else json.loads(text)


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


LONGEST_PATH = 1_000
_STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*)
    | \[\s*(?P<index>-?\d{1,15})\s*\]
    | \[\s*(?P<start>-?\d{1,15})?\s*:\s*(?P<end>-?\d{1,15})?\s*\]
    | \[\s*(?P<all>\*)\s*\]
    | \[\s*(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*\]""",
    re.VERBOSE,
)
_SHOWN_KEYS = 20
Step = str | int | slice


def select(value: Any, path: str) -> Any:
    """Return the value at the path. Raises NoSuchPart, which names the parts that exist."""
    return _select(value, _steps(path), path, "$")


def _steps(path: str) -> list[Step]:
    if len(path) > LONGEST_PATH:
        raise NoSuchPart(path=path[:50] + "…", reason=f"it is longer than {LONGEST_PATH} characters")
    rest = path.strip()
    rest = rest[1:] if rest.startswith("$") else rest if rest[:1] in (".", "[") else f".{rest}"
    steps: list[Step] = []
    while rest:
        found = _STEP.match(rest)
        if found is None:
            raise NoSuchPart(
                path=path, reason=f'{rest[:50]!r} is no step; write .name, ["name"], [3], [10:20] or [*]'
            )
        steps.append(_step(found))
        rest = rest[found.end() :]
    return steps


def _step(found: re.Match[str]) -> Step:
    if found["name"] is not None:
        return found["name"]
    if found["index"] is not None:
        return int(found["index"])
    if found["quoted"] is not None:
        text = found["quoted"]
        try:
            return str(json.loads(text)) if text[0] == '"' else text[1:-1].replace("\\'", "'")
        except ValueError:
            return text[1:-1]
    if found["all"] is not None:
        return slice(None)
    return slice(*(None if found[side] is None else int(found[side]) for side in ("start", "end")))


def _select(value: Any, steps: Sequence[Step], path: str, at: str) -> Any:
    for index, step in enumerate(steps):
        if isinstance(step, slice):
            return _of_each(_items(value, step, path, at), steps[index + 1 :], path, f"{at}[…]")
        value = _member(value, step, path, at) if isinstance(step, str) else _item(value, step, path, at)
        at += f".{step}" if isinstance(step, str) else f"[{step}]"
    return value


def _of_each(items: list[Any], steps: Sequence[Step], path: str, at: str) -> list[Any]:
    if not steps:
        return items
    taken, missing = [], None
    for item in items:
        try:
            taken.append(_select(item, steps, path, at))
        except NoSuchPart as error:
            missing = error
            taken.append(None)
    if missing is not None and all(part is None for part in taken):
        raise missing
    return taken


def _member(value: Any, key: str, path: str, at: str) -> Any:
    if not isinstance(value, Mapping):
        raise NoSuchPart(path=path, reason=f"{at} is {_kind(value)}, and has no keys")
    if key not in value:
        known = ", ".join(repr(each)[:60] for each in list(value)[:_SHOWN_KEYS])
        more = ", …" if len(value) > _SHOWN_KEYS else ""
        raise NoSuchPart(path=path, reason=f"{at} has no key {key[:60]!r}; it has: {known or 'none'}{more}")
    return value[key]


def _item(value: Any, index: int, path: str, at: str) -> Any:
    length = _length(value, path, at)
    if not -length <= index < length:
        raise NoSuchPart(path=path, reason=f"{at} has {length} items, and the first is [0]")
    return value[index]


def _items(value: Any, part: slice, path: str, at: str) -> list[Any]:
    length = _length(value, path, at)
    items: list[Any] = value[part]
    if not items and (part.start is not None or part.stop is not None):
        raise NoSuchPart(path=path, reason=f"{at} has {length} items, and none in that range")
    return items


def _length(value: Any, path: str, at: str) -> int:
    if not isinstance(value, list):
        raise NoSuchPart(path=path, reason=f"{at} is {_kind(value)}, and has no items")
    return len(value)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a text"
        case Mapping():
            return "an object"
        case list():
            return "a list"
    return "a number"
