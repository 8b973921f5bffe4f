"""The keeper: the sweeps that keep a store in order. One works per store at a time, whoever runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .clock import Clock, SystemClock
from .config import Settings
from .folders import remove_task_folder
from .store import Store

_BATCH = 500


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
    """Sweeps a store. Call `sweep` now and then; it does nothing while somebody else is the keeper."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        holder: str,
        *,
        clock: Clock | None = None,
        tasks_folder: Path | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._holder = holder
        self._clock = clock or SystemClock()
        self._tasks_folder = tasks_folder

    def sweep(self) -> Swept | None:
        """One round of all sweeps, each in small bites; None when another keeper is at work."""
        # Read before the first write: if the store goes away now and comes back later, the workers have
        # had no chance to say that they are alive.
        now, settings, store = self._clock.now_ms(), self._settings, self._store
        if not store.keep(self._holder, lease_s=3 * settings.supervisor.keeper_interval_s):
            return None

        def ago(seconds: float) -> int:
            return now - int(seconds * 1000)

        swept = Swept(
            lost=_all(
                lambda: store.lose(heartbeat_before=ago(settings.supervisor.lease_grace_s), limit=_BATCH)
            ),
            ready=store.make_ready(),
            timed_out=_all(lambda: store.time_out(limit=_BATCH)),
            expired=_all(lambda: store.expire(limit=_BATCH)),
            purged=_all(lambda: store.purge(before=ago(settings.retention.purge_after_s), limit=_BATCH)),
            packed=store.pack_logs(finished_before=ago(settings.retention.pack_logs_after_s)),
        )
        store.forget_runtimes()
        for task_id in (*swept.expired, *swept.purged):
            if self._tasks_folder is not None:
                remove_task_folder(self._tasks_folder, task_id)
        return swept


def _all(sweep: Callable[[], list[str]]) -> list[str]:
    """Sweep until a bite is not full."""
    touched: list[str] = []
    while True:
        bite = sweep()
        touched += bite
        if len(bite) < _BATCH:
            return touched
