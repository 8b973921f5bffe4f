"""A supervisor that holds its lock and is not heard of any more: finding it out, and taking its place."""

from __future__ import annotations

import logging

from ...clock import SystemClock
from ...config import Settings
from ...errors import StoreBusy, StoreError
from ...store import Store
from ...unchanged import Unchanged
from . import linux
from .supervisor_lock import SupervisorLock

log = logging.getLogger("backburner.engine")

#: A supervisor that only starts says nothing for so long, on a busy machine.
_STARTING_S = 5.0


class SilentHolder:
    """Watches whoever holds the lock, by its heartbeats in the store.

    `look_every_s` is how often that is worth it.
    """

    def __init__(self, lock: SupervisorLock, store: Store, settings: Settings) -> None:
        self._lock = lock
        self._store = store
        self._has_workers = bool(settings.local_workers)
        self._lost_after_s = max(settings.supervisor.lost_after_s, _STARTING_S)
        self._seen: Unchanged[str] = Unchanged(SystemClock())
        self.look_every_s = min(self._lost_after_s / 5, 5.0)

    def take_its_place(self) -> int | None:
        """If the holder was silent for so long that its runners are dead: end it, and take the lock from it.

        The lock's descriptor when it had to be superseded, since it could not be ended. None as long as
        it is alive, and when it could be ended: then its lock is free.
        """
        lock = self._lock.seen()
        holder = lock[1].get("supervisor_id")
        try:
            heard = [each.last_heartbeat for each in self._store.workers() if each.supervisor_id == holder]
        except StoreError:
            self._seen.look({})  # nobody can be heard through a store that is away
            return None
        silent_ms = self._seen.look({"lock": (lock, heard)})["lock"]
        if not self._has_workers or not silent_ms:
            return None
        if self._is_kept_from_writing(lock[1].get("pid")):
            self._seen.look({})
            return None
        if silent_ms <= self._lost_after_s * 1000:
            return None
        self._seen.look({})
        pid, started = lock[1].get("pid"), lock[1].get("started")
        log.warning("the supervisor %s was silent for %d s, and is replaced", pid, silent_ms / 1000)
        if isinstance(pid, int) and isinstance(started, int) and linux.end_process(pid, started):
            return None
        return self._lock.supersede(lock)

    def _is_kept_from_writing(self, supervisor: object) -> bool:
        """Return whether the store is locked by a process other than the supervisor with this pid."""
        try:
            self._store.check_writable()
        except StoreBusy as busy:
            return bool(busy.details.get("pid") != supervisor)
        except StoreError:
            return False
        return False
