"""Times and spans of time as text, and back."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import overload

from .errors import ConfigError

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
