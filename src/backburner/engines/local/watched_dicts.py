"""Seeing whether dicts were changed, without looking at all that is in them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

#: In CPython up to 3.12 a dict has a number, after its reference count, type and length, that every
#: change makes another one.
_NUMBER_AT = 3 * ctypes.sizeof(ctypes.c_size_t)


class WatchedDicts:
    """Some dicts, as they were when they were last said to be right."""

    def __init__(self, watched: Iterable[dict[str, Any]]) -> None:
        self._watched = [_Numbered(each) if _numbers_work() else _Compared(each) for each in watched]

    def changed(self) -> list[int]:
        """Which of them may have changed, by their place: all that have, and rarely one that has not."""
        return [place for place, each in enumerate(self._watched) if each.changed()]

    def are_right(self, places: Iterable[int]) -> None:
        """These are as they should be now."""
        for place in places:
            self._watched[place].is_right()


class _Numbered:
    def __init__(self, watched: dict[str, Any]) -> None:
        self._dict = watched  # which keeps it where it is
        self._number = ctypes.c_uint64.from_address(id(watched) + _NUMBER_AT)
        self.is_right()

    def changed(self) -> bool:
        return self._number.value != self._before

    def is_right(self) -> None:
        self._before = self._number.value


class _Compared:
    def __init__(self, watched: dict[str, Any]) -> None:
        self._values = watched.values()
        self.is_right()

    def changed(self) -> bool:
        # Faster than comparing dicts: what did not change are the very same objects, in the same order.
        return [*self._values] != self._before

    def is_right(self) -> None:
        self._before = [*self._values]


def _numbers_work() -> bool:
    """Whether this Python is one in which they tell."""
    sample = dict.fromkeys(("first", "second"))
    number = ctypes.c_uint64.from_address(id(sample) + _NUMBER_AT)
    seen = [number.value, number.value]
    sample["first"] = sample
    seen.append(number.value)
    del sample["first"]
    seen.append(number.value)
    sample.clear()
    return seen[0] == seen[1] and len(set(seen[1:])) == 3
