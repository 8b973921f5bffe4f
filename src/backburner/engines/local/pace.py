"""How quick the tasks of a queue are, and so how many a worker may lease ahead."""

from __future__ import annotations

#: How long tasks that were leased ahead wait behind one; then others may have them.
AHEAD_WAITS_MS = 50

#: Where tasks take less than this, a worker leases ahead: else it would wait for commits more than it works.
_QUICK_MS = 5.0
_AHEAD_MS = 20.0
_MOST_AHEAD = 20
_WEIGHT = 0.2


class Pace:
    """A moving average of run times, by queue."""

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}

    def measured(self, queue: str, ran_ms: int) -> None:
        """A task took so long. A slow one counts at once, quick ones bit by bit."""
        average = self._averages.get(queue, 2 * _QUICK_MS)
        self._averages[queue] = max(
            average + _WEIGHT * (ran_ms - average), ran_ms if ran_ms > _QUICK_MS else 0
        )

    def room(self, queue: str) -> int:
        """How many tasks a worker of this queue may hold: the one that it is at, and those ahead."""
        average = self._averages.get(queue, _QUICK_MS)
        return 1 if average >= _QUICK_MS else 1 + min(_MOST_AHEAD, int(_AHEAD_MS / max(average, 0.5)))
