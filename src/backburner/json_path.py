"""The part of a JSON value at a path: a small part of JSONPath (RFC 9535), each step of which leads on.

$                   all of it
.name  ["name"]     the value of a key
[3]  [-1]           an item of a list, from 0; from the end if it is negative
[10:20]  [:5]  [*]  some items, or all; what follows is taken of each, and null where an item has none
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import NoSuchPart

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
    """What is at the path. Raises NoSuchPart, which says what is there instead."""
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
