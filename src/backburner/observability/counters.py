"""Counters of one server process: plain numbers, nearly free while metrics are not read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
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
COUNTERS = Counters()
