"""Supervisor lock: one supervisor per host and store, its handover, and one store per data folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ...core.files import make_private
from ...core.times import SystemClock
from ...errors import DataDirTaken, StoreError
from ...settings import without_password
from ...store.protocol import Store
from ...version import VERSION
from .processes import linux

#: The signal that asks a supervisor to retire.
RETIRE = signal.SIGUSR1

_LONGEST = 4096
_RETIRED = "retired-"
#: How long a retired supervisor keeps its lock for the successor.
_SUCCESSOR_COMES_MS = 10_000
_ASK_AGAIN_S = 0.5
_POLL_S = 0.02

#: The entry in the lock's file.
Holder = dict[str, Any]


class SupervisorLock:
    """The lock that a host's supervisor of a store holds; the kernel frees it at the end of its process.

    For a process that is stopped, or hangs in the kernel, others put a new lock in its place. The holder of
    the old one is superseded then.
    """

    def __init__(self, data_dir: Path) -> None:
        make_private(data_dir)
        self.path = data_dir / "supervisor.lock"

    def take(self, *, wait: bool = False) -> int | None:
        """Take the lock; return its file descriptor, or None while another process holds it."""
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
        """Return whether another lock is in the place of this one, which is held."""
        found = _identity(self.path)
        return found is not None and found != _identity(fd)

    def holder(self) -> dict[str, Any] | None:
        """Return what its holder has written; None when it is free."""
        with contextlib.suppress(FileNotFoundError):
            if self._is_locked(self.path):
                return _parse(self.path.read_bytes())
        return None

    def sign(
        self, fd: int, pid: int | None, *, detached: bool = True, store: dict[str, str] | None = None
    ) -> str | None:
        """Write the holder into the lock's file; return the new supervisor's id, or None if superseded.

        The ids of all holders of a lock share a prefix. So a supervisor can tell earlier holders, which must
        be dead, from supervisors of other hosts. `pid` is None for a process that is about to start a
        supervisor. `detached`: a server has started it, rather than a person or a service.
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
        """Erase the holder's entry, before it releases the lock."""
        with self._changing():
            signature = _parse(os.pread(fd, _LONGEST, 0))
            if signature.get("supervisor_id") == supervisor_id:
                _write(fd, {"place": signature.get("place")})

    def retire(self, fd: int, supervisor_id: str) -> int:
        """Let a successor replace this lock; return the descriptor of a lock that shows this one lives."""
        with self._changing():
            signature = _parse(os.pread(fd, _LONGEST, 0))
            alive = self._put(self._retired_path(supervisor_id), signature)
            _write(fd, {**signature, "retiring": True})
            return alive

    def retired(self) -> list[dict[str, Any]]:
        """Return the entries of retired supervisors that are alive."""
        found = []
        for path in self.path.parent.glob(f"{_RETIRED}*.lock"):
            with contextlib.suppress(OSError):  # it has just ended
                if self._is_locked(path):
                    found.append(_parse(path.read_bytes()))
        return found

    def forget_retired(self, supervisor_id: str) -> None:
        self._retired_path(supervisor_id).unlink(missing_ok=True)

    def _retired_path(self, supervisor_id: str) -> Path:
        return self.path.with_name(f"{_RETIRED}{supervisor_id}.lock")

    def _is_locked(self, path: Path) -> bool:
        """Return whether a lock is held. A shared lock, so that many can check at once."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def seen(self) -> tuple[object, dict[str, Any]]:
        """Return the identity of the lock file and its entry, for `supersede`."""
        try:
            return _identity(self.path), _parse(self.path.read_bytes())
        except OSError:
            return None, {}

    def supersede(self, seen: tuple[object, dict[str, Any]]) -> int | None:
        """Replace a lock that was seen by a new one, and take that. None if it has changed meanwhile."""
        with self._changing():
            if self.seen() != seen:
                return None
            return self._put(self.path, {"place": seen[1].get("place")})

    def _put(self, path: Path, content: dict[str, Any]) -> int:
        """Put a new, locked file in place."""
        fd, name = tempfile.mkstemp(prefix=".supervisor-", dir=path.parent)
        fcntl.flock(fd, fcntl.LOCK_EX)
        _write(fd, content)
        Path(name).replace(path)
        return fd

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Serialize changes of locks in this folder."""
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


class HeldLock:
    """The lock as its supervisor holds it, until it is superseded, or has retired and a successor has it."""

    def __init__(self, lock: SupervisorLock, fd: int, supervisor_id: str) -> None:
        self.lock = lock
        self.supervisor_id = supervisor_id
        self._fd = fd
        self._retired_fd: int | None = None
        self._handed_over_by: int | None = None
        self._clock = SystemClock()

    @property
    def is_lost(self) -> bool:
        """Return whether another supervisor has taken over although this one has not retired."""
        return self._retired_fd is None and self.lock.is_superseded(self._fd)

    def retire(self) -> None:
        """Let a successor have the lock; this supervisor holds another one to show that it is alive."""
        self._retired_fd = self.lock.retire(self._fd, self.supervisor_id)
        self._handed_over_by = self._clock.steady_ms() + _SUCCESSOR_COMES_MS

    def is_handing_over(self) -> bool:
        """Return whether the lock is kept for a successor; it is released after a while."""
        if self._handed_over_by is None:
            return False
        if self._clock.steady_ms() < self._handed_over_by and not self.lock.is_superseded(self._fd):
            return True
        self._handed_over_by = None
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def release(self) -> None:
        try:
            self.lock.leave(self._fd, self.supervisor_id)
        finally:
            os.close(self._fd)
        if self._retired_fd is not None:
            self.lock.forget_retired(self.supervisor_id)
            os.close(self._retired_fd)


def take_over(lock: SupervisorLock, asks: Callable[[Holder], bool], within_s: float) -> int | None:
    """Take the lock, asking its holder to retire if `asks` is true for it; return its descriptor.

    None when the holder is not to be asked, or has not handed over in time. See docs/decisions/0018.
    """
    ask_at = began = time.monotonic()
    while (fd := lock.take()) is None:
        seen = lock.seen()
        holder, now = seen[1], time.monotonic()
        if holder.get("retiring"):
            fd = lock.supersede(seen)
            if fd is not None:
                return fd
        elif "supervisor_id" in holder and not asks(holder):
            return None
        elif isinstance(holder.get("pid"), int) and now >= ask_at:  # else it is only starting
            ask_at = now + _ASK_AGAIN_S
            linux.signal_process(holder["pid"], holder.get("started"), RETIRE)
        if now - began >= within_s:
            return None
        time.sleep(_POLL_S)
    return fd


def take_if_free(lock: SupervisorLock, within_s: float) -> int | None:
    """Take the lock, unless a supervisor has it or is about to start; return its descriptor.

    A process that only waited for the lock holds it for a moment too, and writes no entry.
    """
    return take_over(lock, lambda _: False, within_s)


def is_detached(holder: Holder) -> bool:
    """Return whether a server has started the holder, rather than a person or a service."""
    return bool(holder.get("detached"))


def is_older(holder: Holder) -> bool:
    """Return whether the holder runs an earlier release of Backburner."""
    return _order(str(holder.get("version"))) < _order(VERSION)


def _order(version: str) -> tuple[list[int], str]:
    """Return a sort key: versions have a total order, so that servers cannot replace each other for ever."""
    return [int(number) for number in re.findall(r"\d+", version)], version


class LockWait:
    """Waits for the lock on a thread, since the kernel offers no timeout for that."""

    def __init__(self, lock: SupervisorLock) -> None:
        self._lock = lock
        self._taken: SimpleQueue[int | OSError] = SimpleQueue()
        self._handing_over = threading.Lock()
        self._over = False
        threading.Thread(target=self._wait, name="backburner-lock", daemon=True).start()

    def taken(self, within_s: float) -> int | None:
        """Return the lock's descriptor once it is ours; None after that time. Raises OSError."""
        try:
            found = self._taken.get(timeout=within_s)
        except Empty:
            return None
        if isinstance(found, OSError):
            raise found
        return found

    def end(self) -> None:
        """Stop waiting. The thread ends when it gets the lock, and releases it."""
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


def mark_of(store: Store) -> dict[str, str]:
    """Return the id of a store, which does not depend on its URL, and its URL; empty while it is away."""
    try:
        secret = store.secret()
    except StoreError:
        return {}
    return {"id": hashlib.sha256(secret).hexdigest()[:16], "url": without_password(store.url)}


def refuse_another_store(lock: SupervisorLock, store: Store) -> None:
    """Raise DataDirTaken while the supervisor of another store holds the lock of this data folder."""
    holder = lock.holder() or {}
    theirs = holder.get("store")
    if theirs and (ours := mark_of(store)) and theirs["id"] != ours["id"]:
        raise DataDirTaken(
            engine="local", folder=str(lock.path.parent), pid=holder.get("pid"), store=theirs["url"]
        )
