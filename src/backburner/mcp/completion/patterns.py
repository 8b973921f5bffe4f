"""Texts that match a regular expression, for people to see what is wanted."""

from __future__ import annotations

import importlib
import random
import re
import string
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import regex

#: How long one match may take. A pattern that needs longer, as some do that backtrack, is not used.
_MATCH_S = 0.005
_MOST_CHARS = 200
#: A pattern that asks for more characters than this costs too much to compile.
_WIDEST = 10_000
_MOST_STEPS = 2000
_VARIANTS = 24

#: What people write more often than what a generator makes of the same pattern.
_SAMPLES = (
    "snake_case",
    "example_name",
    "example",
    "Example",
    "EXAMPLE",
    "example-name",
    "example1",
    "1",
    "42",
    "2026",
    "1.0",
    "1.2.3",
    "v1.2.3",
    "2026-01-31",
    "12:30",
    "2026-01-31T12:30:00Z",
    "user@example.com",
    "example.com",
    "https://example.com/",
    "192.0.2.1",
    "/path/to/file",
    "file.txt",
    "+15550100",
    "#336699",
    "123e4567-e89b-12d3-a456-426614174000",
)

# The standard library's own parser. It has no public name, but no other agrees with `re` in everything.
_parser: Any = importlib.import_module("re._parser")


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` is found in `text`, as by `re.search`. No when that takes too long, or it is none."""
    if _tree(pattern) is None:
        return False
    try:
        return regex.search(pattern, text, timeout=_MATCH_S) is not None
    except (TimeoutError, regex.error, RecursionError, OverflowError):
        return False


@lru_cache(maxsize=512)
def pattern_examples(
    pattern: str, *, min_length: int = 0, max_length: int | None = None, limit: int = 10
) -> tuple[str, ...]:
    """Up to `limit` different texts that match and have a fitting length; maybe none for odd patterns."""
    found: list[str] = []
    longest = _MOST_CHARS if max_length is None else min(max_length, _MOST_CHARS)
    for text in (*_SAMPLES, *_generated(pattern, min_length)):
        if min_length <= len(text) <= longest and text not in found and matches(pattern, text):
            found.append(text)
            if len(found) == limit:
                break
    return tuple(found)


def continued(pattern: str, partial: str, examples: tuple[str, ...]) -> list[str]:
    """Texts that begin with `partial` and match: itself, and the examples written over from its end on."""
    tries = dict.fromkeys([partial, *(partial + example[len(partial) :] for example in examples)])
    return [text for text in tries if len(text) <= _MOST_CHARS and matches(pattern, text)]


@lru_cache(maxsize=512)
def _tree(pattern: str) -> Any:
    """The parsed pattern; None for what is no pattern, or one that only a very long text can match."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern)
            tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    shortest, _ = tree.getwidth()
    return tree if shortest <= _WIDEST else None


def _generated(pattern: str, min_length: int) -> Iterator[str]:
    tree = _tree(pattern)
    for variant in range(_VARIANTS if tree is not None else 0):
        try:
            yield _Generator(random.Random(variant), spread=variant % 6, min_length=min_length).text(tree)
        except (_TooLong, RecursionError):
            continue


class _TooLong(Exception):
    """The text grows past what anybody would read."""


class _Generator:
    """Writes one text for a parsed pattern. Assertions are passed over: the match afterwards judges."""

    def __init__(self, chance: random.Random, *, spread: int, min_length: int) -> None:
        self._chance = chance
        self._spread = spread
        self._min_length = min_length
        self._groups: dict[int, str] = {}
        self._steps = 0

    def text(self, tree: Any) -> str:
        parts = []
        length = 0
        for operation, argument in tree:
            self._steps += 1
            part = self._part(str(operation), argument)
            length += len(part)
            if length > _MOST_CHARS or self._steps > _MOST_STEPS:
                raise _TooLong
            parts.append(part)
        return "".join(parts)

    def _part(self, operation: str, argument: Any) -> str:
        match operation:
            case "LITERAL":
                return chr(argument)
            case "NOT_LITERAL":
                return self._one_of([char for char in _READABLE if ord(char) != argument])
            case "ANY":
                return self._one_of(_LETTERS)
            case "IN":
                return self._one_of(_members(argument))
            case "BRANCH":
                return self.text(self._chance.choice(argument[1]))
            case "SUBPATTERN":
                group, _, _, inner = argument
                text = self.text(inner)
                if group is not None:
                    self._groups[group] = text
                return text
            case "ATOMIC_GROUP":
                return self.text(argument)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeated(*argument)
            case "GROUPREF":
                return self._groups.get(argument, "")
            case "GROUPREF_EXISTS":
                group, there, absent = argument
                return self.text(there if group in self._groups else absent or [])
            case _:
                return ""

    def _repeated(self, least: int, most: int, inner: Any) -> str:
        wanted = max(least + self._spread, self._min_length if self._spread else 0)
        times = max(least, min(int(most), wanted))
        if times > _MOST_STEPS:
            raise _TooLong
        return "".join(self.text(inner) for _ in range(times))

    def _one_of(self, characters: str | list[str]) -> str:
        if not characters:
            raise _TooLong
        return self._chance.choice(characters)


_LETTERS = string.ascii_lowercase
_READABLE = string.ascii_letters + string.digits + "_-. "
_CATEGORIES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_NOT_DIGIT": _LETTERS,
    "CATEGORY_WORD": _LETTERS + string.digits,
    "CATEGORY_NOT_WORD": "-. ",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": _LETTERS + string.digits,
}


def _members(items: list[Any]) -> list[str]:
    """The readable characters of a set such as `[a-z_]`; of a set without any, its first character."""
    negated = bool(items) and str(items[0][0]) == "NEGATE"
    chosen: list[str] = []
    for operation, argument in items[1:] if negated else items:
        match str(operation):
            case "LITERAL":
                chosen.append(chr(argument))
            case "RANGE":
                low, high = argument
                inside = [char for char in _READABLE if low <= ord(char) <= high]
                chosen.extend(inside or [chr(low)])
            case "CATEGORY":
                chosen.extend(_CATEGORIES.get(str(argument), ""))
    return [char for char in _READABLE if char not in chosen] if negated else chosen
