"""The moments at which the supervisor's loop has something to do, even if it hears nothing."""

from __future__ import annotations

from typing import Literal

#: What a moment is for: to send heartbeats, look at the attempts, look into the queues, write what waits.
Timer = Literal["heartbeat", "look", "claim", "write"]


class Timers:
    """A steady moment for each timer that is set. One that was due is off until it is set again."""

    def __init__(self) -> None:
        self._moments: dict[Timer, int] = {}

    def soon(self, timer: Timer, moment: int | None) -> None:
        """Let a timer be due at that moment at the latest; None changes nothing."""
        if moment is not None:
            known = self._moments.get(timer)
            if known is None or moment < known:
                self._moments[timer] = moment

    def due(self, timer: Timer, now: int) -> bool:
        """Whether its moment has come; then the timer is off."""
        moment = self._moments.get(timer)
        if moment is None or now < moment:
            return False
        del self._moments[timer]
        return True

    def patience_s(self, now: int) -> float | None:
        """How long it is until the next moment; None when there is none."""
        if not self._moments:
            return None
        return max(0, min(self._moments.values()) - now) / 1000
