"""Threads beside the supervisor's loop: repeated work, runner timeouts, folder removal, artifact copies."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from ....core.files import open_outgoing
from ....core.task import Artifact
from ....core.times import Clock
from ....errors import ArtifactStorageError, BackburnerError
from ....store.artifacts import ArtifactStore
from ..processes.children import RunnerProcess

log = logging.getLogger("backburner.supervisor")

#: The loop ends a runner first: it can report the reason.
_AFTER_LOOP_MS = 500
#: Each copy of an artifact holds a part of it in memory.
_COPIES_AT_ONCE = 4


class BackgroundWork(Protocol):
    """Work that a supervisor starts at its beginning and stops at its end."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Stop and wait for the end; harmless when it was never started."""
        ...


class Repeated:
    """Calls a function again and again, with pauses. Errors are logged, and it goes on after the pause."""

    def __init__(
        self, name: str, action: Callable[[], object], *, pause_s: float, at_the_end: bool = False
    ) -> None:
        """`at_the_end` calls it once more when it is stopped."""
        self._name = name
        self._action = action
        self._pause_s = pause_s
        self._at_the_end = at_the_end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=f"backburner-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._at_the_end:
            self._call()

    def _repeat(self) -> None:
        while not self._stopped.wait(self._pause_s):
            self._call()

    def _call(self) -> None:
        try:
            self._action()
        except (BackburnerError, OSError) as error:
            log.warning("%s: %s", self._name, error)


class Watchdog:
    """Kills runners past their deadline, also while the loop waits for the store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[RunnerProcess, int] = {}
        self._changed = threading.Condition()
        self._wakes_at: float = float("inf")
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name="backburner-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def kill_at(self, runner: RunnerProcess, deadline: int) -> None:
        """Kill it soon after that time of the steady clock, unless `forget` is called before."""
        with self._changed:
            self._deadlines[runner] = deadline = deadline + _AFTER_LOOP_MS
            if deadline < self._wakes_at:
                self._changed.notify()

    def forget(self, runner: RunnerProcess) -> None:
        with self._changed:
            self._deadlines.pop(runner, None)

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped:
                now = self._clock.steady_ms()
                for runner in [runner for runner, deadline in self._deadlines.items() if deadline <= now]:
                    del self._deadlines[runner]
                    runner.zygote.end(runner)
                self._wakes_at = min(self._deadlines.values(), default=float("inf"))
                self._changed.wait((self._wakes_at - now) / 1000 if self._deadlines else None)


class FolderRemoval:
    """Removes folders, one after another; all of them before it stops."""

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
        self._folders.put(folder)

    def _remove_all(self) -> None:
        while (folder := self._folders.get()) is not None:
            shutil.rmtree(folder, ignore_errors=True)


#: Called when an artifact is stored, with the error if it could not be.
Stored = Callable[[BackburnerError | None], object]


class ArtifactCopies:
    """Copies artifacts to their storage. Callbacks run on the loop's thread."""

    def __init__(self, artifacts: ArtifactStore, tasks: Path, selector: selectors.BaseSelector) -> None:
        self._artifacts = artifacts
        self._tasks = tasks
        self._selector = selector
        self._done: SimpleQueue[tuple[Stored, BackburnerError | None]] = SimpleQueue()
        self._room = threading.BoundedSemaphore(_COPIES_AT_ONCE)
        self._wake_pipe: tuple[int, int] | None = None

    def copy(self, artifact: Artifact, then: Stored) -> None:
        if self._wake_pipe is None:
            self._wake_pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._selector.register(self._wake_pipe[0], selectors.EVENT_READ, self._call_back)
        # A daemon: the supervisor's end does not wait for a storage.
        threading.Thread(
            target=self._copy,
            args=(artifact, then, self._wake_pipe[1]),
            name="backburner-artifact",
            daemon=True,
        ).start()

    def _copy(self, artifact: Artifact, then: Stored, wake_fd: int) -> None:
        error: BackburnerError | None = None
        with self._room:
            try:
                with open_outgoing(self._tasks, artifact) as source:
                    self._artifacts.keep(artifact, source)
            except BackburnerError as raised:
                error = raised
            except Exception as raised:
                error = ArtifactStorageError(storage="", reason=f"{type(raised).__name__}: {raised}")
        self._done.put((then, error))
        with contextlib.suppress(
            OSError
        ):  # the pipe is full, and wakes the loop; or the supervisor has ended
            os.write(wake_fd, b".")

    def _call_back(self) -> None:
        assert self._wake_pipe is not None, "it was opened before anything was written to it"
        os.read(self._wake_pipe[0], 4096)
        while not self._done.empty():
            then, error = self._done.get()
            then(error)
