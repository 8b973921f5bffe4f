"""The lock that there is one supervisor for each host and store, and the ids of those who held it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ...clock import SystemClock
from ...folders import make_private
from ...version import VERSION
from . import linux

_LONGEST = 4096
_RETIRED = "retired-"


class SupervisorLock:
    """The lock that a host's supervisor of a store holds. It dies with its process, so it cannot lie.

    But a process can be stopped, or hang in the kernel. Then others put a new lock in its place, and
    whoever holds the old one is superseded.
    """

    def __init__(self, data_dir: Path) -> None:
        make_private(data_dir)
        self.path = data_dir / "supervisor.lock"

    def take(self, *, wait: bool = False) -> int | None:
        """The lock's file descriptor, or None while another process holds it."""
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                os.close(fd)
                return None
            if not self.is_superseded(fd):
                return fd
            os.close(fd)

    def is_superseded(self, fd: int) -> bool:
        """Whether this lock, which is held, counts no more: another one is in its place."""
        found = _identity(self.path)
        return found is not None and found != _identity(fd)

    def holder(self) -> dict[str, Any] | None:
        """Who holds it, as it said itself; None when nobody does."""
        with contextlib.suppress(FileNotFoundError):
            if self._is_locked(self.path):
                return _parse(self.path.read_bytes())
        return None

    def sign(
        self, fd: int, pid: int | None, *, detached: bool = True, store: dict[str, str] | None = None
    ) -> str | None:
        """Write into the lock's file who holds it now; the new supervisor's id, or None if it is superseded.

        Ids of all that ever held this lock begin alike. So a supervisor knows those that must be dead,
        since it holds their lock, from those that work on the same store with a lock of their own.
        `pid` is None for one who is about to start a supervisor. `detached` says that nobody stands by it.
        `store` says which one it works on.
        """
        with self._changing():
            if self.is_superseded(fd):
                return None
            place = _parse(os.pread(fd, _LONGEST, 0)).get("place") or secrets.token_hex(4)
            supervisor_id = f"sup_{place}_{secrets.token_hex(4)}"
            signature = {
                "place": place,
                "pid": pid,
                "started": None if pid is None else linux.started_at(pid),
                "supervisor_id": supervisor_id,
                "version": VERSION,
                "detached": detached,
                "store": store,
                "since": SystemClock().now_ms(),
            }
            _write(fd, signature)
            return supervisor_id

    def leave(self, fd: int, supervisor_id: str) -> None:
        """For its holder, before it lets go: take its name off, so that nobody thinks it is still there."""
        with self._changing():
            signature = _parse(os.pread(fd, _LONGEST, 0))
            if signature.get("supervisor_id") == supervisor_id:
                _write(fd, {"place": signature.get("place")})

    def retire(self, fd: int, supervisor_id: str) -> int:
        """For its holder: let whoever asks for it have this lock by `supersede`.

        Gives the descriptor of a lock that shows that the one who has retired is alive.
        """
        with self._changing():
            signature = _parse(os.pread(fd, _LONGEST, 0))
            alive = self._put(self._sign_of_life(supervisor_id), signature)
            _write(fd, {**signature, "retiring": True})
            return alive

    def retired(self) -> list[dict[str, Any]]:
        """Those who have retired and are alive, each as it signed."""
        found = []
        for path in self.path.parent.glob(f"{_RETIRED}*.lock"):
            with contextlib.suppress(OSError):  # it ends just now
                if self._is_locked(path):
                    found.append(_parse(path.read_bytes()))
        return found

    def forget_retired(self, supervisor_id: str) -> None:
        self._sign_of_life(supervisor_id).unlink(missing_ok=True)

    def _sign_of_life(self, supervisor_id: str) -> Path:
        return self.path.with_name(f"{_RETIRED}{supervisor_id}.lock")

    def _is_locked(self, path: Path) -> bool:
        """Whether somebody holds a lock; it is not taken for a moment, so that any number can look."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def seen(self) -> tuple[object, dict[str, Any]]:
        """The lock that is there now, and what it says of its holder: for `supersede`."""
        try:
            return _identity(self.path), _parse(self.path.read_bytes())
        except OSError:
            return None, {}

    def supersede(self, seen: tuple[object, dict[str, Any]]) -> int | None:
        """Put a new lock, taken, in the place of one that was seen. None if that changed meanwhile."""
        with self._changing():
            if self.seen() != seen:
                return None
            return self._put(self.path, {"place": seen[1].get("place")})

    def _put(self, path: Path, content: dict[str, Any]) -> int:
        """A new file in the place of what is there, locked from the first moment on."""
        fd, name = tempfile.mkstemp(prefix=".supervisor-", dir=path.parent)
        fcntl.flock(fd, fcntl.LOCK_EX)
        _write(fd, content)
        Path(name).replace(path)
        return fd

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One at a time signs a lock or replaces it."""
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


class LockWait:
    """Waits for the lock on a thread of its own, since the kernel gives that no time-out."""

    def __init__(self, lock: SupervisorLock) -> None:
        self._lock = lock
        self._taken: SimpleQueue[int | OSError] = SimpleQueue()
        self._handing_over = threading.Lock()
        self._over = False
        threading.Thread(target=self._wait, name="backburner-lock", daemon=True).start()

    def taken(self, within_s: float) -> int | None:
        """The lock's descriptor if it is ours by then. Raises OSError when it cannot be waited for."""
        try:
            found = self._taken.get(timeout=within_s)
        except Empty:
            return None
        if isinstance(found, OSError):
            raise found
        return found

    def end(self) -> None:
        """Wait no more. The thread ends when it gets the lock, and lets go of it."""
        with self._handing_over:
            self._over = True
        with contextlib.suppress(Empty, OSError):
            if (fd := self.taken(within_s=0)) is not None:
                os.close(fd)

    def _wait(self) -> None:
        try:
            found: int | OSError | None = self._lock.take(wait=True)
        except OSError as error:
            found = error
        with self._handing_over:
            if not self._over and found is not None:
                self._taken.put(found)
            elif isinstance(found, int):
                os.close(found)


def _identity(file: int | Path) -> tuple[int, int] | None:
    try:
        found = os.fstat(file) if isinstance(file, int) else file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write(fd: int, content: dict[str, Any]) -> None:
    text = json.dumps(content).encode()
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))
