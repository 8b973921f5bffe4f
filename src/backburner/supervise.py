"""The supervisor as a program: what the local engine starts, as `python -m backburner.supervise`."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .config import Settings
from .engines.local import SupervisorLock, sign_lock, work_is_left
from .engines.local.supervisor import Supervisor
from .stores import open_store


def supervise(
    settings: Settings,
    data_dir: Path,
    lock_fd: int,
    targets: Sequence[str],
    on_ready: Callable[[], object] = lambda: None,
) -> None:
    """Run a supervisor in this process, under a lock that it holds already, until it is over."""
    store = open_store(settings.store, synchronous=settings.synchronous)
    try:
        while True:
            supervisor_id = sign_lock(lock_fd)
            Supervisor(store, settings, data_dir, supervisor_id, targets=tuple(targets)).run(on_ready)
            # Work that came in at the very end would find nobody: look once more without the lock.
            os.close(lock_fd)
            if not work_is_left(store, settings, held=False):
                return
            taken = SupervisorLock(data_dir).take()
            if taken is None:
                return
            lock_fd, on_ready = taken, lambda: None
    finally:
        store.close()


def main() -> None:
    """Read the configuration from stdin, and say on stdout when ready; all else goes to stderr."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config = json.load(sys.stdin)
    settings = Settings.from_json(config["settings"])

    def say_ready() -> None:
        os.write(1, b"ready\n")
        os.dup2(2, 1)

    supervise(settings, Path(settings.data_dir), int(sys.argv[1]), config["targets"], say_ready)


if __name__ == "__main__":
    main()
