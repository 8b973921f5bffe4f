"""A clock that stands still until it is moved."""

from __future__ import annotations


class FakeClock:
    """Time for tests: constant until `advance`, or until the wall clock is set."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self._steady_ms = 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def uptime_ms(self) -> int:
        return self._steady_ms

    def advance(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)
        self._steady_ms += int(seconds * 1000)

    def set_wall_clock(self, by_seconds: float) -> None:
        """Let the wall clock jump; no time passes."""
        self._now_ms += int(by_seconds * 1000)
