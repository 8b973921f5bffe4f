"""Noticing that somebody set this host's wall clock, by comparing it with one that cannot be set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..clock import Clock
from ..json_file import read_json, write_json

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Less may come from reading two clocks one after the other.
_LEAST_MS = 1_000
_AT_ONCE_MS = 50


class HostClock:
    """Remembers in a file how far apart the two clocks are; so a jump is noticed even if nobody runs then.

    Another boot begins anew: then there is nothing to compare the wall clock with.
    """

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._apart_ms = 0

    def look(self) -> int:
        """By how many milliseconds the wall clock was set since the last `remember`; 0 when it was not."""
        self._apart_ms = self._measure()
        known = self._read()
        if known.get("boot") != _boot() or not isinstance(known.get("apart_ms"), int):
            self.remember()
            return 0
        jump_ms: int = self._apart_ms - known["apart_ms"]
        return jump_ms if abs(jump_ms) >= _LEAST_MS else 0

    def remember(self) -> None:
        """Keep what the last `look` has found: it is taken care of."""
        write_json(self._file, {"boot": _boot(), "apart_ms": self._apart_ms})

    def _read(self) -> dict[str, Any]:
        try:
            return read_json(self._file)
        except (ValueError, TypeError):
            return {}

    def _measure(self) -> int:
        while True:
            before = self._clock.uptime_ms()
            now = self._clock.now_ms()
            if self._clock.uptime_ms() - before <= _AT_ONCE_MS:
                return now - before


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
