"""The supervisor as a program: what the local engine starts, as `python -m backburner.supervise`."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .config import Settings
from .engines.local import SupervisorLock, new_supervisor_id, sign_lock
from .engines.local.supervisor import Supervisor
from .stores import open_store


def supervise(settings: Settings, data_dir: Path, lock_fd: int, targets: Sequence[str]) -> None:
    """Run a supervisor in this process, under a lock that it holds already, until it is over."""
    supervisor_id = new_supervisor_id()
    sign_lock(lock_fd, supervisor_id)
    store = open_store(settings.store, synchronous=settings.synchronous)
    try:
        while True:
            Supervisor(store, settings, data_dir, supervisor_id, targets=tuple(targets)).run()
            # Work that came in at the very end would find nobody: look once more without the lock.
            os.close(lock_fd)
            if not any(depth.queued for depth in store.queue_depths()):
                return
            taken = SupervisorLock(data_dir).take()
            if taken is None:
                return
            lock_fd = taken
    finally:
        store.close()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config = json.load(sys.stdin)
    settings = Settings.from_json(config["settings"])
    supervise(settings, Path(settings.data_dir), int(sys.argv[1]), config["targets"])


if __name__ == "__main__":
    main()
