"""Time, from one object, so that tests can move it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where Backburner reads the time. Wall time is integer milliseconds since the epoch."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
