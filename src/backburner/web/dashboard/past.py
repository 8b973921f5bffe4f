"""What ended over a time: what is long over is read anew only now and then, for it hardly changes."""

from __future__ import annotations

from typing import Any

from ..access import Access
from ..reading import Reading
from ..spans import joined
from .charts import Period

#: So many of the last stretches are read each time: more may end in them.
_FRESH = 2
#: For so long what is over is kept; within that, one of its tasks may have been deleted, or tried again.
_KEPT_MS = 60_000
#: Of so many owners and periods.
_MOST_KEPT = 100


class Past:
    """The statistics of an app's store. Blocks."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._kept: dict[tuple[str | None, str, int], tuple[int, dict[str, Any]]] = {}

    def statistics(self, access: Access, period: Period, now_ms: int) -> dict[str, Any]:
        """Of the time that is chosen, up to now."""
        since, until = period.around(now_ms)
        edge = until - _FRESH * period.every_ms
        key = (access.owner, period.name, since)
        read_at, before = self._kept.get(key, (0, None))
        if before is None or now_ms - read_at > _KEPT_MS:
            before = self._read(access, period, since, edge)
            self._keep(key, now_ms, before)
        return joined(before, self._read(access, period, edge, until))

    def _read(self, access: Access, period: Period, since: int, until: int) -> dict[str, Any]:
        every_s = period.every_ms / 1000
        return self._reading.statistics(access, since=since, until=until, every_s=every_s)

    def _keep(self, key: tuple[str | None, str, int], now_ms: int, before: dict[str, Any]) -> None:
        still = {known: one for known, one in self._kept.items() if now_ms - one[0] <= _KEPT_MS}
        self._kept = {**still, key: (now_ms, before)} if len(still) < _MOST_KEPT else {key: (now_ms, before)}
