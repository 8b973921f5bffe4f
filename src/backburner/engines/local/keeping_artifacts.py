"""Copies artifacts to where they are kept, on threads beside the supervisor's loop."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from ...artifacts import ArtifactStore
from ...errors import ArtifactStorageError, BackburnerError
from ...folders import open_outgoing
from ...task import Artifact

#: How many go up at a time; each has a part of it in memory.
_AT_ONCE = 4

#: What is done when an artifact is kept, or could not be.
Then = Callable[[BackburnerError | None], object]


class ArtifactKeeping:
    """Has artifacts kept. `then` is called on the loop's thread."""

    def __init__(self, artifacts: ArtifactStore, tasks: Path, selector: selectors.BaseSelector) -> None:
        self._artifacts = artifacts
        self._tasks = tasks
        self._selector = selector
        self._kept: SimpleQueue[tuple[Then, BackburnerError | None]] = SimpleQueue()
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self._bell: tuple[int, int] | None = None

    def keep(self, artifact: Artifact, then: Then) -> None:
        if self._bell is None:
            self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._selector.register(self._bell[0], selectors.EVENT_READ, self._tell)
        # A daemon: the end of the supervisor does not wait for a storage, and what is not kept is not there.
        threading.Thread(
            target=self._keep, args=(artifact, then, self._bell[1]), name="backburner-artifact", daemon=True
        ).start()

    def _keep(self, artifact: Artifact, then: Then, bell: int) -> None:
        error: BackburnerError | None = None
        with self._room:
            try:
                with open_outgoing(self._tasks, artifact) as source:
                    self._artifacts.keep(artifact, source)
            except BackburnerError as raised:
                error = raised
            except Exception as raised:
                error = ArtifactStorageError(storage="", reason=f"{type(raised).__name__}: {raised}")
        self._kept.put((then, error))
        try:
            os.write(bell, b".")
        except BlockingIOError:
            pass  # it rings already
        except OSError:
            pass  # nobody is there any more to hear it

    def _tell(self) -> None:
        assert self._bell is not None, "it rang"
        os.read(self._bell[0], 4096)
        while not self._kept.empty():
            then, error = self._kept.get()
            then(error)
