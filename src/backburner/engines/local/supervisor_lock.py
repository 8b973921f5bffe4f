"""The lock that there is one supervisor for each host and store, and the ids of those who held it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from pathlib import Path


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


def sign_lock(fd: int) -> str:
    """Write into the lock's file who holds it now; the new supervisor's id.

    Ids of all that ever held this lock begin alike. So a supervisor knows those that must be dead,
    since it holds their lock, from those that work on the same store with a lock of their own.
    """
    try:
        place = json.loads(os.pread(fd, 4096, 0))["place"]
    except (ValueError, KeyError, TypeError):
        place = secrets.token_hex(4)
    supervisor_id = f"sup_{place}_{secrets.token_hex(4)}"
    text = json.dumps({"place": place, "pid": os.getpid(), "supervisor_id": supervisor_id})
    os.pwrite(fd, text.encode(), 0)
    os.ftruncate(fd, len(text))
    return supervisor_id
