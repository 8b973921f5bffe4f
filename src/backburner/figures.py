"""What a server counts of itself: plain numbers, which cost next to nothing when nobody reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Figures:
    """Of this process, since it began."""

    held_calls: int = 0
    joined_calls: int = 0
    notifications_dropped: int = 0

    @contextmanager
    def holding(self) -> Iterator[None]:
        """A call is held in this block."""
        self.held_calls += 1
        try:
            yield
        finally:
            self.held_calls -= 1


#: Those of this process.
FIGURES = Figures()
