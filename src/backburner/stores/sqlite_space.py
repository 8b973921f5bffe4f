"""The room that a SQLite file takes on its disk, and giving back what deleted tasks left in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from ..errors import NoRoomToCompact
from ..store import StoreSize

#: Pages that one step gives back. Writers wait for it, and what it moves is in the write-ahead log first.
_PAGES_AT_ONCE = 512
_PAGES_AT_ONCE_WHEN_TIGHT = 16
#: The write-ahead log is cut to this when it begins anew; it is copied into the file at about this size.
LARGEST_LOG_BYTES = 8 << 20
_TIGHT_BYTES = 64 << 20
_ROOMY_BYTES, _ROOMY_S = 4 << 30, 0.25
#: What a file keeps of its free pages, for the next tasks.
SPARE_BYTES = 4 << 20
_INCREMENTAL = 2


def let_give_back(connection: sqlite3.Connection) -> None:
    """Make it a file that can give back: one with nothing in it at once, another when it is written anew."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


class FileSpace:
    """The room of one file. `connect` makes a connection to it, and `lock` keeps the other writers out."""

    def __init__(
        self,
        path: Path,
        url: str,
        connect: Callable[[], sqlite3.Connection],
        lock: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._path = path
        self._url = url
        self._connect = connect
        self._lock = lock
        self._roomy_until = 0.0

    def size(self, connection: sqlite3.Connection) -> StoreSize:
        wal_bytes = file_bytes(self._path.with_name(self._path.name + "-wal"))
        return StoreSize(
            bytes=file_bytes(self._path) + wal_bytes,
            log_bytes=wal_bytes,
            free_bytes=_number(connection, "page_size") * _number(connection, "freelist_count"),
            gives_back=_number(connection, "auto_vacuum") == _INCREMENTAL,
        )

    def give_back(self, keep_bytes: int) -> int:
        """Take some of the free pages from the file; how many bytes it is. Raises sqlite3.Error."""
        with self._lock(), contextlib.closing(self._connect()) as connection:
            page = _number(connection, "page_size")
            before = _number(connection, "freelist_count")
            most = _PAGES_AT_ONCE_WHEN_TIGHT if self.is_tight() else _PAGES_AT_ONCE
            pages = min(most, before - keep_bytes // page)
            if pages > 0:
                # As a script: `execute` would take the first page, and no more.
                connection.executescript(f"PRAGMA incremental_vacuum({pages})")
                self.copy_log(connection)
            return page * (before - _number(connection, "freelist_count"))

    def is_tight(self) -> bool:
        """Whether there is so little room that it must be had for pruning.

        A disk with much room has some a moment later, and is asked again then.
        """
        now = time.monotonic()
        if now < self._roomy_until:
            return False
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return False
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes > _ROOMY_BYTES:
            self._roomy_until = now + _ROOMY_S
        return free_bytes < _TIGHT_BYTES

    def copy_log(self, connection: sqlite3.Connection) -> None:
        """Copy the write-ahead log into the file; what cannot be copied now is left for another time.

        Then it begins anew, in the room that it has. One that fills a disk could not be copied any more.
        """
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def empty_log(self) -> None:
        """Copy all of the log and cut it to nothing, unless somebody reads by it now."""
        with (
            self._lock(),
            contextlib.closing(self._connect()) as connection,
            contextlib.suppress(sqlite3.Error),
        ):
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def rewrite(self) -> None:
        """Write the file anew, as one that can give back. Raises NoRoomToCompact, and sqlite3.Error."""
        with self._lock(), contextlib.closing(self._connect()) as connection:
            pages = _number(connection, "page_count") - _number(connection, "freelist_count")
            needed = 2 * pages * _number(connection, "page_size") + (1 << 20)  # a copy, and the log of it
            free = shutil.disk_usage(self._path.parent).free
            if free < needed:
                raise NoRoomToCompact(store=self._url, needed_mb=needed >> 20, free_mb=free >> 20)
            let_give_back(connection)
            with _temporary_files_in(self._path.parent):
                connection.execute("VACUUM")
        self.empty_log()


@contextlib.contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Have SQLite make its temporary files where the room was measured: `/tmp` may be small."""
    before = os.environ.get("SQLITE_TMPDIR")
    os.environ["SQLITE_TMPDIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("SQLITE_TMPDIR")
        if before is not None:
            os.environ["SQLITE_TMPDIR"] = before


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    number: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number


def file_bytes(path: Path) -> int:
    """The size of a file; of one that is not there, nothing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
