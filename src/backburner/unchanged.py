"""For how long something has stayed the same, in the eyes of one who looks now and then."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from .clock import Clock

Key = TypeVar("Key", bound=Hashable)


class Unchanged(Generic[Key]):
    """Remembers values, and since when it has seen each of them as it is, by a clock that never jumps.

    So the silence of another host can be measured without comparing clocks with it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[object, int]] = {}

    def look(self, values: Mapping[Key, object]) -> dict[Key, int]:
        """Take note of values that were read just before; for how many ms each has been seen the same.

        What is not among them is forgotten.
        """
        now = self._clock.steady_ms()
        seen = {}
        for key, value in values.items():
            known = self._seen.get(key)
            seen[key] = known if known is not None and known[0] == value else (value, now)
        self._seen = seen
        return {key: now - since for key, (_, since) in seen.items()}
