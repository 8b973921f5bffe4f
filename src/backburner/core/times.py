"""The clock, parsing and formatting of times and durations, and tracking of unchanged values."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar, overload

from ..errors import ConfigError

# Elsewhere than on Linux, no clock is known to count on while the host sleeps.
_WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Source of time in integer milliseconds (docs/decisions/0013)."""

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


_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")

#: The longest span of time that anybody may name: a hundred years. Every clock and every store can add it up.
LONGEST_S = 36_525 * 86_400.0
#: What a calendar can show, in every time zone: from the second day of the year 1 to the last of 9999.
_EARLIEST_MS, _LATEST_MS = -62_135_510_400_000, 253_402_214_400_000


@overload
def iso(ms: int) -> str: ...


@overload
def iso(ms: None) -> None: ...


@overload
def iso(ms: int | None) -> str | None: ...


def iso(ms: int | None) -> str | None:
    """Milliseconds as an ISO 8601 UTC time such as `2026-02-05T12:00:00.000Z`; None stays None."""
    if ms is None:
        return None
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(ms: int) -> datetime:
    """Milliseconds as a time in UTC; of one that no calendar has, the nearest that there is."""
    return datetime.fromtimestamp(min(max(ms, _EARLIEST_MS), _LATEST_MS) / 1000, UTC)


def from_iso(text: str) -> int:
    """The inverse of `iso`; a time without a zone is UTC. Raises ValueError on anything else."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def span(seconds: float) -> str:
    """A length of time in the unit that a person would use."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} d"


def duration_s(value: float | str, setting: str = "duration") -> float:
    """Seconds from a number, or from text such as `90`, `1.5h` or `1h30m`. Raises ConfigError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) <= LONGEST_S else math.inf
    else:
        text = str(value).strip().lower()
        parts = _DURATION.findall(text)
        if parts and _DURATION.sub("", text).strip() == "":
            seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        else:
            try:
                seconds = float(text)
            except ValueError:
                reason = f"{value!r} is not a time; write seconds, or for example 30s, 5m, 4h, 7d"
                raise ConfigError(setting=setting, reason=reason) from None
    if not 0 <= seconds <= LONGEST_S:
        reason = f"{str(value)[:50]!r} is not a time from 0 on, or longer than a hundred years"
        raise ConfigError(setting=setting, reason=reason)
    return seconds


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
