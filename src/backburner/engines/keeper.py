"""The keeper: sweeps for lost leases, retries, timeouts, expiry and retention; one per store at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..core.times import Clock, SystemClock, Unchanged
from ..errors import StoreBusy
from ..settings import Settings
from ..store.protocol import HeldLease, Store

#: Tasks per transaction. Other writers get their turn in between.
_BATCH = 100
#: An expired task's id and state are readable for another day, so that a late client learns that it expired.
PURGE_AFTER_S = 86_400.0
#: The logs of finished tasks are compressed once they are unlikely to be read live.
PACK_LOGS_AFTER_S = 3600.0
_PAUSE_S = 0.005
#: How many steps of one round return space to the disk.
_STEPS = 16
#: The supervisor ends its tasks itself within this time after their limit.
_TIMEOUT_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Swept:
    """Result of one round: task ids by kind of sweep."""

    lost: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    timed_out: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)


class Keeper:
    """Sweeps a store. `sweep` does nothing while another process is the keeper.

    It remembers observed heartbeats: a new keeper grants every holder the whole grace time again.
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
        """`remove_files` is called with the id of each task whose files must be removed."""
        self._store = store
        self._settings = settings
        self._holder = holder
        self._remove_files = remove_files
        clock = clock or SystemClock()
        self._heartbeats: Unchanged[tuple[str, int]] = Unchanged(clock)
        self._limits: Unchanged[tuple[str, int]] = Unchanged(clock)

    def sweep(self) -> Swept | None:
        """Run one round of all sweeps, in small transactions; None when another process is the keeper."""
        settings, store = self._settings, self._store
        if not self._is_keeper():
            return None
        store.follow_clock()
        silent, overdue = self._check_leases()
        now = store.now_ms()

        def ago(seconds: float) -> int:
            return now - int(seconds * 1000)

        swept = Swept(
            lost=store.lose(silent=silent) if silent else [],
            ready=store.make_ready(),
            timed_out=store.time_out(overdue) if overdue else [],
            expired=_all(lambda: store.expire(limit=_BATCH)),
            purged=_all(lambda: store.purge(before=ago(PURGE_AFTER_S), limit=_BATCH)),
            packed=store.pack_logs(finished_before=ago(PACK_LOGS_AFTER_S)),
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
        """Become or stay the keeper. While the store is locked, missing heartbeats do not count."""
        lease_s = 3 * self._settings.supervisor.keeper_interval_s
        try:
            return self._store.keep(self._holder, lease_s=lease_s)
        except StoreBusy:
            self._heartbeats.look({})
            raise

    def _check_leases(self) -> tuple[list[HeldLease], list[HeldLease]]:
        """Return leases without a heartbeat for too long, and those over their time limit.

        Both by how long this keeper has observed them; no clock of another host counts (docs/decisions/0013).
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
    touched: list[str] = []
    while bite := sweep():
        touched += bite
        time.sleep(_PAUSE_S)
    return touched
