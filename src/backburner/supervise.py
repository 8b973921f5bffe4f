"""The supervisor as a program: what the local engine starts, as `python -m backburner.supervise`."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from .config import Settings
from .engines.local import SupervisorLock, sign_lock, work_is_left
from .engines.local.supervisor import Supervisor
from .errors import BackburnerError
from .mcp.dialects.task_id.prompt_log import PromptLog
from .stores import open_store

logger = logging.getLogger(__name__)

#: How often to look for ended tasks whose result belongs in the prompt log.
_PROMPTS_S = 1.0


def supervise(
    settings: Settings,
    data_dir: Path,
    lock_fd: int,
    targets: Sequence[str],
    on_ready: Callable[[], object] = lambda: None,
) -> None:
    """Run a supervisor in this process, under a lock that it holds already, until it is over."""
    store = open_store(settings.store, synchronous=settings.synchronous)
    prompts = _PromptKeeping(PromptLog.of(store, settings, data_dir))
    try:
        prompts.start()
        while True:
            supervisor_id = sign_lock(lock_fd)
            supervisor = Supervisor(store, settings, data_dir, supervisor_id, targets=tuple(targets))
            was_idle = supervisor.run(on_ready)
            # Work that came in at the very end would find nobody: look once more without the lock.
            os.close(lock_fd)
            if not was_idle or not work_is_left(store, settings, held=False):
                return
            taken = SupervisorLock(data_dir).take()
            if taken is None:
                return
            lock_fd, on_ready = taken, lambda: None
    finally:
        prompts.stop()
        store.close()


class _PromptKeeping:
    """Writes results of the TaskId contract into the prompt log, also when no server is left to do it."""

    def __init__(self, log: PromptLog) -> None:
        self._log = log
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backburner-prompts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(_PROMPTS_S):
            self._catch_up()

    def _catch_up(self) -> None:
        try:
            self._log.catch_up()
        except (BackburnerError, OSError) as error:
            logger.warning("The prompt log is behind: %s", error)

    def stop(self) -> None:
        """Write what is left."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._catch_up()


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
