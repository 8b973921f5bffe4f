"""A clock that stands still until it is moved."""

from __future__ import annotations


class FakeClock:
    """Wall time for tests: the same until `advance`."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)
