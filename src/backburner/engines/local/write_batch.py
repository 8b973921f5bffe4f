"""What a supervisor has to write, in as few commits as there is time for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ...clock import Clock
from ...errors import StoreError, StoreRefused
from .store_outage import StoreOutage
from .timers import Timers

#: How long a write may wait for others, to share a commit with them.
SHARE_COMMIT_MS = 8

Work = TypeVar("Work")


class WriteBatch(Generic[Work]):
    """Collects work for the store, and those who wait for it to be on disk.

    It need not know what it writes: `write_all` writes a list of it in one commit, or raises
    StoreError and has written nothing. Then all is kept, in order, until the store is back.

    What the store will never take (StoreRefused) must not stop the rest: the list is written again
    piece by piece, and `instead` says what to write in place of a piece that is refused, and what to
    do then. Where the store refuses that too, the fault is the store's, and the piece is kept.
    """

    def __init__(
        self,
        write_all: Callable[[list[Work]], object],
        instead: Callable[[Work, StoreRefused], tuple[Work, Callable[[], object]]],
        timers: Timers,
        outage: StoreOutage,
        clock: Clock,
    ) -> None:
        self._write_all = write_all
        self._instead = instead
        self._timers = timers
        self._outage = outage
        self._clock = clock
        self._unwritten: list[Work] = []
        self._waiting: list[Callable[[], object]] = []
        self._share_until = 0

    @property
    def unwritten(self) -> Sequence[Work]:
        """What is not on disk yet."""
        return self._unwritten

    def add(self, work: Work, then: Callable[[], object] | None = None) -> None:
        """Have this written soon. For one who waits (`then` is called when it is on disk) it is at once."""
        self._unwritten.append(work)
        if then is not None:
            self._waiting.append(then)
        self._timers.soon("write", self._share_until if then is None else 0)

    def write(self, now: int, *, more_follows: bool) -> None:
        """Write all of it, then tell those who wait. Where `more_follows`, the next write waits for that."""
        back_at = self._outage.until(now)
        if back_at is not None:
            self._timers.soon("write", back_at)
            return
        work, self._unwritten = self._unwritten, []
        waiting, self._waiting = self._waiting, []
        try:
            self._write(work)
        except StoreError as error:
            self._unwritten, self._waiting = work + self._unwritten, waiting + self._waiting
            self._timers.soon("write", self._outage.begin(error))
            return
        if more_follows:
            self._share_until = self._clock.steady_ms() + SHARE_COMMIT_MS
        for tell in waiting:
            tell()

    def _write(self, work: list[Work]) -> None:
        """Write the list, whole or piece by piece. What is written is off the list when this raises."""
        try:
            self._write_all(work)
        except StoreRefused:
            refused = 0
            while refused < len(work):
                try:
                    self._write_piece(work[refused])
                    del work[refused]
                except StoreRefused as error:
                    refused, refusal = refused + 1, error
            if refused:
                raise refusal from None

    def _write_piece(self, piece: Work) -> None:
        try:
            self._write_all([piece])
        except StoreRefused as refusal:
            other, then = self._instead(piece, refusal)
            self._write_all([other])
            then()
