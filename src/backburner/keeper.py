"""The keeper: the sweeps that keep a store in order. One works per store at a time, whoever runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .clock import Clock, SystemClock
from .config import Settings
from .errors import StoreBusy
from .housekeeping import HeldLease
from .store import Store
from .unchanged import Unchanged

#: One bite of a sweep. Writers get in between two of them.
_BATCH = 100
_PAUSE_S = 0.005
#: So often in one round is room given back to the disk; the rest has time until the next.
_STEPS = 16
#: A holder gets this long past the time limit to end its task itself.
_TIMEOUT_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Swept:
    """What one round of the keeper did: task ids by kind of sweep."""

    lost: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    timed_out: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)


class Keeper:
    """Sweeps a store. Call `sweep` now and then; it does nothing while somebody else is the keeper.

    It remembers what it has seen, so one that begins anew gives every holder the whole grace time again.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        holder: str,
        *,
        clock: Clock | None = None,
        remove_files: Callable[[str], object] = lambda task_id: None,
    ) -> None:
        """`remove_files` is called with the id of each task whose files have to go."""
        self._store = store
        self._settings = settings
        self._holder = holder
        self._remove_files = remove_files
        clock = clock or SystemClock()
        self._heartbeats: Unchanged[tuple[str, int]] = Unchanged(clock)
        self._limits: Unchanged[tuple[str, int]] = Unchanged(clock)

    def sweep(self) -> Swept | None:
        """One round of all sweeps, each in small bites; None when another keeper is at work."""
        settings, store = self._settings, self._store
        if not self._is_keeper():
            return None
        store.follow_clock()
        silent, overdue = self._look_at_leases()
        now = store.now_ms()

        def ago(seconds: float) -> int:
            return now - int(seconds * 1000)

        swept = Swept(
            lost=store.lose(silent=silent) if silent else [],
            ready=store.make_ready(),
            timed_out=store.time_out(overdue) if overdue else [],
            expired=_all(lambda: store.expire(limit=_BATCH)),
            purged=_all(lambda: store.purge(before=ago(settings.retention.purge_after_s), limit=_BATCH)),
            packed=store.pack_logs(finished_before=ago(settings.retention.pack_logs_after_s)),
        )
        store.look_at_limits(settings.limits.of_running)
        store.forget_runtimes()
        store.forget_order()
        if store.has_calls():
            store.forget_calls(finished_before=ago(settings.mcp.join_window_s))
        for task_id in (*swept.expired, *swept.purged):
            self._remove_files(task_id)
        for _ in range(_STEPS):
            if not store.give_back():
                break
            time.sleep(_PAUSE_S)
        return swept

    def _is_keeper(self) -> bool:
        """Become or stay the keeper. While the store is locked, silence of a holder means nothing."""
        lease_s = 3 * self._settings.supervisor.keeper_interval_s
        try:
            return self._store.keep(self._holder, lease_s=lease_s)
        except StoreBusy:
            self._heartbeats.look({})
            raise

    def _look_at_leases(self) -> tuple[list[HeldLease], list[HeldLease]]:
        """Those whose holder was silent for too long, and those whose time limit is over.

        Both by how long this keeper has seen them so: no other clock is asked (docs/decisions/0013).
        """
        leases = {(lease.task_id, lease.attempt): lease for lease in self._store.leases()}
        silent_ms = self._heartbeats.look({key: lease.heartbeat_at for key, lease in leases.items()})
        running_ms = self._limits.look({key: lease.limit_ms for key, lease in leases.items()})
        longest_ms = self._settings.supervisor.lost_after_s * 1000
        silent = [lease for key, lease in leases.items() if silent_ms[key] > longest_ms]
        overdue = [
            lease
            for key, lease in leases.items()
            if lease.limit_ms is not None and running_ms[key] > lease.limit_ms + _TIMEOUT_MARGIN_MS
        ]
        return silent[:_BATCH], overdue[:_BATCH]


def _all(sweep: Callable[[], list[str]]) -> list[str]:
    """Sweep until there is nothing left."""
    touched: list[str] = []
    while bite := sweep():
        touched += bite
        time.sleep(_PAUSE_S)
    return touched
