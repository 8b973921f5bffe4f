"""Keeping house beside the supervisor's loop: what may take long, on a thread of its own."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from ...clock import Clock
from ...config import Settings
from ...errors import StoreError
from ...keeper import Keeper
from ...store import Store
from . import linux

log = logging.getLogger("backburner.supervisor")


class Housekeeping:
    """Sweeps the store now and then, and removes what killed attempts have left behind.

    It sweeps only while the supervisor's own heartbeats arrive: where they do not, its tasks could look
    lost to its own keeper.
    """

    def __init__(
        self, store: Store, settings: Settings, supervisor_id: str, clock: Clock, tasks_folder: Path
    ) -> None:
        self._beat_at = 0.0
        self._fresh_s = settings.lease_grace_s / 2
        self._interval_s = settings.keeper_interval_s
        self._keeper = Keeper(store, settings, supervisor_id, clock=clock, tasks_folder=tasks_folder)
        self._litter: SimpleQueue[Path] = SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="backburner-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def heartbeat_arrived(self) -> None:
        """For the supervisor to say, each time."""
        self._beat_at = time.monotonic()

    def remove(self, folder: Path) -> None:
        """Remove a folder soon."""
        self._litter.put(folder)

    def _keep(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                if time.monotonic() - self._beat_at < self._fresh_s:
                    self._keeper.sweep()
            except StoreError as error:
                log.warning("%s", error)
            self._tidy()
        self._tidy()

    def _tidy(self) -> None:
        while not self._litter.empty():
            shutil.rmtree(self._litter.get(), ignore_errors=True)


def take_over(store: Store, supervisor_id: str) -> None:
    """End what is left of supervisors that died, and give their tasks back.

    We hold the lock that was theirs, so they are dead for sure.
    """
    place = supervisor_id.rpartition("_")[0] + "_"
    left = [
        worker
        for worker in store.workers()
        if worker.supervisor_id.startswith(place) and worker.supervisor_id != supervisor_id
    ]
    supervisors = {worker.supervisor_id for worker in left}
    for dead in supervisors:
        if not linux.end_tagged(linux.SUPERVISOR_VARIABLE, dead):
            log.warning("processes of %s cannot be ended", dead)
    store.lose(workers=[worker.worker_id for worker in left])
    for dead in supervisors:
        store.remove_workers(dead)
