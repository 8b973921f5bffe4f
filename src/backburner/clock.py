"""Time, from one object, so that tests can move it."""

from __future__ import annotations

import time
from typing import Protocol

# Elsewhere than on Linux, no clock is known to count on while the host sleeps.
_WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Where Backburner reads the time, in integer milliseconds (docs/decisions/0013)."""

    def now_ms(self) -> int:
        """Wall time since the epoch. It can be set, and so jump: it is to show, and not to measure by."""
        ...

    def steady_ms(self) -> int:
        """Time that never jumps, from a moment of no meaning. It stands still while the host sleeps."""
        ...

    def uptime_ms(self) -> int:
        """As `steady_ms`, but it counts on while the host sleeps."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def uptime_ms(self) -> int:
        return time.clock_gettime_ns(_WITH_SLEEP) // 1_000_000
