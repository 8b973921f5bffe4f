"""Work beside the supervisor's loop: what may take long, each kind on a thread of its own."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from ...errors import BackburnerError

log = logging.getLogger("backburner.supervisor")


class BackgroundWork(Protocol):
    """What a supervisor starts when it begins to work, and stops at its end."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Returns when it is over; also when it was never started."""
        ...


class Repeated:
    """Does something again and again, with pauses; once more at the end if it must not miss anything.

    An error of ours or of the system is logged, and it is tried again after the pause.
    """

    def __init__(
        self, name: str, action: Callable[[], object], *, pause_s: float, at_the_end: bool = False
    ) -> None:
        self._name = name
        self._action = action
        self._pause_s = pause_s
        self._at_the_end = at_the_end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=f"backburner-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._at_the_end:
            self._do()

    def _repeat(self) -> None:
        while not self._over.wait(self._pause_s):
            self._do()

    def _do(self) -> None:
        try:
            self._action()
        except (BackburnerError, OSError) as error:
            log.warning("%s: %s", self._name, error)


class FolderRemoval:
    """Removes folders, one after another; a large one takes its time."""

    def __init__(self) -> None:
        self._folders: SimpleQueue[Path | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._remove_all, name="backburner-folders", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._folders.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def remove(self, folder: Path) -> None:
        """Remove a folder soon, and before the end in any case."""
        self._folders.put(folder)

    def _remove_all(self) -> None:
        while (folder := self._folders.get()) is not None:
            shutil.rmtree(folder, ignore_errors=True)
