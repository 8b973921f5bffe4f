"""Patience with a store that does not answer."""

from __future__ import annotations

import logging

from ...clock import Clock
from ...errors import StoreError, StoreGone
from .complaint import Complaint

log = logging.getLogger("backburner.supervisor")

_TRY_AGAIN_MS = 250


class StoreOutage:
    """After an error the store is left alone for a moment, by all parts of a supervisor."""

    def __init__(self, clock: Clock, complaint: Complaint) -> None:
        self._clock = clock
        self._complaint = complaint
        self._ends_at = 0

    def begin(self, error: StoreError) -> int:
        """The store has failed; when to try again. A store that is gone is raised: nothing is left to do."""
        if isinstance(error, StoreGone):
            raise error
        log.warning("%s", error)
        self._complaint.refused(error)
        self._ends_at = self._clock.steady_ms() + _TRY_AGAIN_MS
        return self._ends_at

    def until(self, now: int) -> int | None:
        """When it ends; None when there is none."""
        return self._ends_at if now < self._ends_at else None
