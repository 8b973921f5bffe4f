"""Values that one function tells and another sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class KeptValues:
    """Keeps the values that there are when it is made, each with the functions that tell and set it."""

    def __init__(self, *pairs: tuple[Callable[[], Any], Callable[[Any], object]]) -> None:
        self._tell = [tell for tell, _ in pairs]
        self._put = [put for _, put in pairs]
        self._before = [tell() for tell in self._tell]

    def restore(self) -> None:
        """Set again what is another one now. Raises what the functions raise."""
        now = [tell() for tell in self._tell]
        if now != self._before:
            for put, before, value in zip(self._put, self._before, now, strict=True):
                if value != before:
                    put(before)
