"""Texts written after a parsed regular expression."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import Any

#: A text that would be longer, or take more steps to write, is given up.
MOST_CHARS = 200
_MOST_STEPS = 2000
#: How many texts are tried.
_VARIANTS = 24

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


def texts_of(steps: Any, min_length: int) -> Iterator[str]:
    """Different tries at a text that fits the steps of a pattern, the same in each process.

    Some repeat as often as `min_length` may need. Whether a text matches is still to be seen: what a
    pattern asserts (`^`, `(?=…)`) is passed over.
    """
    for variant in range(_VARIANTS):
        try:
            yield _Writer(random.Random(variant), spread=variant % 6, min_length=min_length).text(steps)
        except (_GivenUp, RecursionError):
            continue


class _GivenUp(Exception):
    """The text grows past what anybody would read, or no character fits."""


class _Writer:
    """Writes one text. `spread` is how much more often than asked for it repeats what may repeat."""

    def __init__(self, chance: random.Random, *, spread: int, min_length: int) -> None:
        self._chance = chance
        self._spread = spread
        self._min_length = min_length
        self._groups: dict[int, str] = {}
        self._steps = 0

    def text(self, steps: Any) -> str:
        parts = []
        length = 0
        for operation, argument in steps:
            self._steps += 1
            part = self._part(str(operation), argument)
            length += len(part)
            if length > MOST_CHARS or self._steps > _MOST_STEPS:
                raise _GivenUp
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
            raise _GivenUp
        return "".join(self.text(inner) for _ in range(times))

    def _one_of(self, characters: str | list[str]) -> str:
        if not characters:
            raise _GivenUp
        return self._chance.choice(characters)


def _members(items: list[Any]) -> list[str]:
    """The readable characters of a set such as `[a-z_]`; of a range without any, its first character."""
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
