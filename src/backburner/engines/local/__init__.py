"""The local engine: a supervisor on this host, started when there is work, that outlives the server."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

from ...config import Settings
from ...errors import EngineError, StoreError
from ...store import Store
from ...task import Task


class SupervisorLock:
    """The lock that a host's supervisor of a store holds. It dies with its process, so it cannot lie."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = data_dir / "supervisor.lock"

    def take(self, *, wait: bool = False) -> int | None:
        """The lock's file descriptor, or None while another process holds it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def holder(self) -> dict[str, object] | None:
        """Who holds it, as it said itself; None when nobody does."""
        fd = self.take()
        if fd is not None:
            os.close(fd)
            return None
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, object] = json.loads(self.path.read_text())
            return found
        return {}


def sign_lock(fd: int, supervisor_id: str) -> None:
    """Write into the lock's file who holds it, for people and for `doctor`."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps({"pid": os.getpid(), "supervisor_id": supervisor_id}).encode(), 0)


def new_supervisor_id() -> str:
    return "sup_" + secrets.token_hex(6)


class LocalEngine:
    """Starts the host's supervisor when there is work, and again when it has died.

    The server passes the lock on to the supervisor that it starts, so that there is never a
    moment in which a second one could begin.
    """

    name = "local"

    def __init__(
        self, settings: Settings, data_dir: Path, target: str, store: Store, *, temporary: bool = False
    ) -> None:
        self._settings = dataclasses.replace(settings, data_dir=str(data_dir))
        self._lock = SupervisorLock(data_dir)
        self._data_dir = data_dir
        self._target = target
        self._store = store
        self._temporary = temporary
        self._guard: threading.Thread | None = None
        self._needed = threading.Event()
        self._started = threading.Event()
        self._stopped = False
        self._error: EngineError | None = None

    def start(self) -> None:
        if not self._target:
            reason = "the app was not made in a file that a runner could import; put it into a .py file"
            raise EngineError(engine=self.name, reason=reason)
        if self._guard is None:
            self._guard = threading.Thread(target=self._stand_guard, name="backburner-guard", daemon=True)
            self._guard.start()
        self._needed.set()
        self._started.wait(10)
        if self._error is not None:
            raise self._error

    def submit(self, task: Task) -> None:
        if self._guard is None:
            self.start()
        self._needed.set()

    def cancel(self, task: Task) -> None:
        self._needed.set()

    def probe(self, task: Task) -> bool | None:
        return None

    def stop(self) -> None:
        self._stopped = True
        self._needed.set()
        if self._temporary:  # its tasks are gone with the store, so its supervisor must go too
            self._end_supervisor()

    def _end_supervisor(self) -> None:
        pid = (self._lock.holder() or {}).get("pid")
        if isinstance(pid, int):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGTERM)
        if self._guard is not None:
            self._guard.join(10)

    def _stand_guard(self) -> None:
        """Wait until nobody holds the supervisor's lock; then, if there is work, start a supervisor."""
        child: subprocess.Popen[bytes] | None = None
        while not self._stopped:
            fd = self._lock.take()
            if fd is None:
                self._started.set()
                fd = self._lock.take(wait=True)
            if child is not None:
                child.wait()
                child = None
            if fd is None or self._stopped:
                _close(fd)
                return
            if not self._needed.is_set() and not self._work_is_left():
                _close(fd)
                self._needed.wait()
                continue
            self._needed.clear()
            try:
                child = self._spawn(fd)
            except OSError as error:
                self._error = EngineError(engine=self.name, reason=f"no supervisor could be started: {error}")
            finally:
                _close(fd)
            self._started.set()

    def _work_is_left(self) -> bool:
        try:
            return any(depth.queued or depth.leased for depth in self._store.queue_depths())
        except StoreError:
            return False

    def _spawn(self, lock_fd: int) -> subprocess.Popen[bytes]:
        """Start a supervisor that holds the lock already and belongs to no terminal, session or parent."""
        config = {"settings": self._settings.to_json(), "targets": [self._target]}
        log = os.open(
            self._data_dir / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "backburner.supervise", str(lock_fd)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[lock_fd],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        finally:
            os.close(log)
        assert child.stdin is not None, "it is a pipe"
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(config).encode())
            child.stdin.close()
        return child


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
