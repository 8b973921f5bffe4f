"""Lock that lets one process of a host at a time write to a SQLite file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreBusy

#: How long a write waits for another process by default.
WAIT_S = 10.0
#: Pauses between two tries. The first ones are about as long as a commit.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 0.0001, 0.002, 1.3
#: The byte of a `-shm` file whose lock is SQLite's own write lock in WAL mode.
_WAL_WRITE_BYTE = 120


class WriteLock:
    """An `flock` on a file beside the store. Call it for a context in which this process holds the lock.

    The kernel has no time limit for an `flock`, so a lock that is taken is tried again after short pauses.
    SQLite's own lock would do, but waits for it take milliseconds.
    """

    def __init__(self, path: Path, url: str) -> None:
        """Raises OSError."""
        self._path = path
        self._url = url
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.wait_s = WAIT_S

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Raises StoreBusy when another process holds the lock for longer than `wait_s`."""
        self._take(self._fd, self.wait_s)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def check(self, within_s: float) -> None:
        """Raise StoreBusy if the lock cannot be had within that time."""
        with self._path.open() as file:  # its own, so that a writer of this process counts, too
            self._take(file.fileno(), within_s)

    def close(self) -> None:
        os.close(self._fd)

    def _take(self, fd: int, within_s: float) -> None:
        deadline: float | None = None
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                now = time.monotonic()
                deadline = now + within_s if deadline is None else deadline
                if now >= deadline:
                    pid = lock_holder(self._path, "FLOCK")
                    who = "another process" if pid is None else f"process {pid}"
                    reason = f"{who} has held its write lock for {within_s:g} s"
                    raise StoreBusy(store=self._url, reason=reason, pid=pid) from None
            time.sleep(pause_s)
            pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)


def sqlite_writer(path: Path) -> int | None:
    """Return the id of the process that holds SQLite's own write lock on the database at `path`, if any."""
    return lock_holder(path.with_name(path.name + "-shm"), "POSIX", _WAL_WRITE_BYTE)


def lock_holder(path: Path, kind: str, byte: int = 0) -> int | None:
    """Return the id of the process that holds a write lock of this kind on a byte of a file, by /proc/locks.

    None if there is no such lock, or its process is not visible from here.
    """
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    # A line is `1: FLOCK  ADVISORY  WRITE 4242 08:01:131 0 EOF`. That of a waiter has `->` after the number.
    for line in lines:
        match line.split():
            case [_, found, _, "WRITE", pid, file, first, last] if found == kind:
                covers = int(first) <= byte and (last == "EOF" or byte <= int(last))
                if file.rpartition(":")[2] == str(inode) and covers and int(pid) > 0:
                    return int(pid)
    return None
