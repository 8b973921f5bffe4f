"""What SQLite and the system say went wrong, as errors of ours that name the true reason.

SQLite tells of a write that failed, but not why: `disk I/O error` is all there is for a file that
may not be written, for a file that may not grow and for a disk that is broken. So the files are
looked at. They are not opened for it: closing one would take this process's locks away.
"""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from pathlib import Path

from ..errors import (
    StoreBroken,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from .transaction import UNFIT
from .write_lock import sqlite_writer

_KINDS: tuple[tuple[tuple[str, ...], type[StoreError]], ...] = (
    (("SQLITE_FULL",), StoreFull),
    (("SQLITE_BUSY", "SQLITE_LOCKED"), StoreBusy),
    (("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ"), StoreCorrupt),
    (("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"), StoreReadOnly),
    (("SQLITE_IOERR",), StoreBroken),
)
_REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, *UNFIT)
_BY_NUMBER: dict[int, type[StoreError]] = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EFBIG: StoreFull,
    errno.EIO: StoreBroken,
    errno.EMFILE: StoreUnavailable,
    errno.ENFILE: StoreUnavailable,
    errno.ENOMEM: StoreUnavailable,
}


def from_system(url: str, error: OSError) -> StoreError:
    """Of an error of the system's with a file of the store; what is not known better is of permissions."""
    return _BY_NUMBER.get(error.errno or 0, StoreReadOnly)(store=url, reason=str(error))


def from_sqlite(url: str, path: Path, error: Exception) -> StoreError:
    """Of an error of SQLite's, or of its driver's, with the file at `path`."""
    if isinstance(error, _REFUSALS) or "binding parameter" in str(error):
        return StoreRefused(store=url, reason=str(error))
    name = getattr(error, "sqlite_errorname", None) or ""
    for names, kind in _KINDS:
        if name.startswith(names):
            if kind in (StoreReadOnly, StoreBroken):
                return _looked_at(url, path) or kind(store=url, reason=str(error))
            if kind is StoreBusy and (pid := sqlite_writer(path)) is not None:
                return StoreBusy(store=url, reason=f"{error}; process {pid} is writing to it", pid=pid)
            return kind(store=url, reason=str(error))
    if str(error).startswith("no such table"):  # a store has all its tables from the first moment on
        return StoreCorrupt(store=url, reason=str(error))
    return StoreError(store=url, reason=f"{error} {name}".strip())


def _looked_at(url: str, path: Path) -> StoreError | None:
    """What the files themselves show to be wrong, if anything does."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
            return StoreReadOnly(store=url, reason="its file system is mounted read-only")
    except OSError as error:
        return from_system(url, error)
    beside = [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm")]
    for file in (path.parent, *(file for file in beside if file.exists())):
        if not os.access(file, os.W_OK):
            mode = "its permissions do not allow it"
            if os.geteuid() == 0:  # whom only this can keep out
                mode = "it is immutable (see lsattr; chattr -i ends that)"
            return StoreReadOnly(store=url, reason=f"{file.name} may not be written: {mode}")
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and any(
        f.exists() and f.stat().st_size + 8192 > limit for f in beside
    ):
        return StoreFull(store=url, reason=f"files may have {limit} bytes at most here (see ulimit -f)")
    return None
