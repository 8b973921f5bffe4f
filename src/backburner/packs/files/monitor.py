"""wksm_monitor_sync: a database of a folder tree, and its changes since the last sync."""

from __future__ import annotations

import errno
import json
import marshal
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from ...tools.context import TaskContext
from .tree import Database, Problems, database_path, existing, open_database, shown

_SCHEMA = """
CREATE TABLE IF NOT EXISTS syncs (
    sync INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE, root BLOB NOT NULL,
    started_at REAL NOT NULL, finished_at REAL
);
-- The fingerprint of a folder covers the names, sizes, times and inodes of its files. A folder with the same
-- fingerprint is skipped; null forces the next sync to compare it.
CREATE TABLE IF NOT EXISTS folders (folder INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, fingerprint BLOB);
CREATE TABLE IF NOT EXISTS files (
    folder INTEGER NOT NULL, name BLOB NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (folder, name)
) WITHOUT ROWID;
-- Changes in the latest sync: added, changed, removed, or renamed from `was`.
CREATE TABLE IF NOT EXISTS changes (change TEXT NOT NULL, path BLOB NOT NULL, was BLOB);
CREATE VIEW IF NOT EXISTS paths AS
    SELECT CAST(folders.path AS TEXT) || CAST(name AS TEXT) AS path, size, mtime_ns, hash
    FROM files JOIN folders USING (folder);
"""
_BATCH = 1_000
_REPORTED = 10_000
_CHUNK = 1 << 20
_WHOLE_UP_TO = 256 << 20
_SAMPLES = 16
_PART = "part:"
_SIGNED_64 = (1 << 63) - 1
_OPEN = (
    os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
)  # safe for what has become a pipe or a link
_KINDS = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
}


#: A file in a listing: name, size, mtime_ns, inode. A plain tuple, for speed.
Seen = tuple[bytes, int, int, int]


class Known(NamedTuple):
    """A file of the last sync."""

    folder: int
    path: bytes
    seen: Seen
    hash: str


def wksm_monitor_sync(
    path: Annotated[str, Field(description="The folder to sync, or a single file")],
    recursive: Annotated[bool, Field(description="Include all folders below")] = True,
    database: Database = None,
    *,
    ctx: TaskContext,
) -> dict[str, Any]:
    """Sync a folder tree into its monitor database: what was added, changed, removed or renamed.

    A single file is synced into the database of its folder without the other files. Unchanged files are not
    read again. Symbolic links are not followed. The database is in the user's state folder, or in `database`.
    An interrupted sync resumes.
    """
    began = time.perf_counter()
    found = existing(path)
    root, only = (found, None) if found.is_dir() else (found.parent, os.fsencode(found.name))
    where = database_path("monitor", root, database)
    with open_database(where, _SCHEMA) as connection:
        sync = _Sync(connection, os.fsencode(root), recursive and only is None, ctx, only)
        sync.run()
        result = sync.result()
        if sync.problems or result["files_updated"] or result["removed"]:
            report = json.dumps({"root": shown(root), **sync.report()}, indent=1)
            ctx.artifact(report.encode(), "report.json", kind="report")
    return {**result, "database": shown(where), "duration_seconds": round(time.perf_counter() - began, 3)}


class _Gone:
    """Files that are missing; each may be found once under another name."""

    def __init__(self, files: list[Known]) -> None:
        self._files = {file.path: file for file in files}
        self._by_identity = {file.seen[1:]: file for file in files}
        self._by_content = {(file.seen[1], file.hash): file for file in files if file.seen[1]}

    def moved_to(self, seen: Seen) -> Known | None:
        """Return the missing file with the same inode, time and size; it need not be read again."""
        return self._take(self._by_identity.get(seen[1:]))

    def copied_to(self, seen: Seen, digest: str) -> Known | None:
        """Return the missing file with the same content; empty files do not count."""
        return self._take(self._by_content.get((seen[1], digest)))

    def _take(self, file: Known | None) -> Known | None:
        return self._files.pop(file.path, None) if file else None

    def left(self) -> list[Known]:
        return list(self._files.values())


@dataclass
class _Sync:
    """One sync. Findings are committed in batches, so a retry resumes."""

    database: sqlite3.Connection
    root: bytes
    recursive: bool
    ctx: TaskContext
    only: bytes | None = None  # the single file to sync
    problems: Problems = field(default_factory=Problems)
    processed: int = 0
    hashed_in_part: int = 0

    def __post_init__(self) -> None:
        self._root = self.root.rstrip(b"/") + b"/"
        self._known: dict[bytes, tuple[int, bytes | None]] = {
            path: (folder, fingerprint)
            for folder, path, fingerprint in self.database.execute("SELECT * FROM folders")
        }
        self._pending: list[tuple[bytes, Seen, str | None]] = []
        self._gone: list[Known] = []
        self._fingerprints: dict[bytes, bytes] = {}
        self._incomplete: set[bytes] = set()
        self._hidden: list[bytes] = []  # prefixes of unreadable paths
        self._begin()

    def _begin(self) -> None:
        with self.database as database:
            new = (self.ctx.task_id, self.root, time.time())
            statement = "INSERT OR IGNORE INTO syncs (task_id, root, started_at) VALUES (?, ?, ?)"
            if database.execute(statement, new).rowcount:  # not a further attempt
                database.execute("DELETE FROM changes")

    def run(self) -> None:
        unseen = set(self._known)
        for folder, listing in self._walk():
            unseen.discard(folder)
            self._compare(folder, listing)
        self._add_missing(unseen)
        self._sync_pending()
        self._finish()

    def _walk(self) -> Iterator[tuple[bytes, list[Seen]]]:
        """Yield each folder, as a path below the root with a trailing slash or empty, and its files."""
        waiting = [b""]
        while waiting:
            self.ctx.raise_if_cancelled()
            folder = waiting.pop()
            listing: list[Seen] = []
            try:
                with os.scandir(self._root + folder) as entries:
                    wanted = (entry for entry in entries if self.only in (None, entry.name))
                    self._sort(wanted, folder, listing, waiting)
            except OSError as error:
                self.problems.add(folder or b".", error)
                self._hidden.append(folder)
                continue
            self.processed += len(listing)
            self.ctx.progress(phase="scan", message=f"Found {self.processed} files...")
            yield folder, listing

    def _sort(
        self,
        entries: Iterator[os.DirEntry[bytes]],
        folder: bytes,
        listing: list[Seen],
        waiting: list[bytes],
    ) -> None:
        """Add files to `listing` and folders to `waiting`, and skip the rest."""
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                self._skip(folder, entry.name, error)
                if not isinstance(error, FileNotFoundError):
                    self._hidden.append(folder + entry.name)
                continue
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFREG:
                listing.append((entry.name, *_identity(status)))
            elif kind != stat.S_IFDIR:
                reason = (
                    _about_link(entry.path) if kind == stat.S_IFLNK else _KINDS.get(kind, "no plain file")
                )
                self._skip(folder, entry.name, reason)
            elif self.recursive:
                waiting.append(folder + entry.name + b"/")

    def _skip(self, folder: bytes, name: bytes, reason: str | Exception) -> None:
        self.processed += 1
        self._give_up(folder, name, reason)

    def _give_up(self, folder: bytes, name: bytes, reason: str | Exception) -> None:
        self.problems.add(folder + name, reason)
        self._incomplete.add(folder)

    def _compare(self, folder: bytes, listing: list[Seen]) -> None:
        number, fingerprint = self._known.get(folder, (None, None))
        found = blake2b(marshal.dumps(listing, 2), digest_size=16).digest()
        if fingerprint == found:
            return
        known = {} if number is None else {file.seen[0]: file for file in self._files(number, folder)}
        for seen in listing:
            file = known.pop(seen[0], None)
            if file is None or file.seen != seen:
                self._pending.append((folder, seen, file.hash if file else None))
        if self.only is None:
            self._fingerprints[folder] = found
            self._gone += known.values()

    def _files(self, number: int, folder: bytes) -> Iterator[Known]:
        rows = self.database.execute(
            "SELECT name, size, mtime_ns, inode, hash FROM files WHERE folder = ?", (number,)
        )
        return (Known(number, folder + row[0], row[:4], row[4]) for row in rows)

    def _add_missing(self, unseen: set[bytes]) -> None:
        """Add the files of missing folders, and drop those in unreadable or excluded folders."""
        for folder in unseen if self.recursive else ():
            self._gone += self._files(self._known[folder][0], folder)
        hidden = tuple(self._hidden)
        self._gone = [file for file in self._gone if not file.path.startswith(hidden)]

    def _sync_pending(self) -> None:
        gone = _Gone(self._gone)
        total = len(self._pending)
        for start in range(0, total, _BATCH):
            left: list[Known] = []
            files: list[tuple[int, bytes, int, int, int, str]] = []
            changes: list[tuple[str, bytes, bytes | None]] = []
            for done, (folder, seen, last_hash) in enumerate(
                self._pending[start : start + _BATCH], start + 1
            ):
                if done % 50 == 0 or done == total:
                    self.ctx.raise_if_cancelled()
                    message = f"Processing {done} of {total} files..."
                    self.ctx.progress(done, total, phase="sync", message=message)
                path = folder + seen[0]
                was = gone.moved_to(seen) if last_hash is None else None
                try:
                    digest, now = (was.hash, seen) if was else self._hash(folder, seen)
                except OSError as error:
                    self._give_up(folder, seen[0], error)
                    continue
                if last_hash is None:
                    was = was or gone.copied_to(now, digest)
                    changes.append(("renamed", path, was.path) if was else ("added", path, None))
                    left += [was] if was else []
                elif last_hash != digest or digest.startswith(_PART):
                    changes.append(("changed", path, None))
                files.append((self._number(folder), *now, digest))
            with self.database as database:
                _delete(database, left)
                database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", files)
                database.executemany("INSERT INTO changes VALUES (?, ?, ?)", changes)
        self._gone = gone.left()

    def _number(self, folder: bytes) -> int:
        known = self._known.get(folder)
        if known is None:
            row = self.database.execute("INSERT INTO folders (path) VALUES (?) RETURNING folder", (folder,))
            known = self._known[folder] = (int(row.fetchone()[0]), None)
        return known[0]

    def _hash(self, folder: bytes, seen: Seen) -> tuple[str, Seen]:
        """Return the hash and the stat of a file, taken before reading so that no change is missed."""
        fd = os.open(self._root + folder + seen[0], _OPEN)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is no longer a plain file")
            size, *_ = identity = _identity(status)
            now = (seen[0], *identity)
            if size > _WHOLE_UP_TO:
                self.hashed_in_part += 1
                return _hash_of_samples(fd, size), now
            digest = blake2b(os.read(fd, min(size, _CHUNK)), digest_size=16)
            if size > _CHUNK:
                while data := os.read(fd, _CHUNK):
                    self.ctx.raise_if_cancelled()
                    digest.update(data)
            return digest.hexdigest(), now
        finally:
            os.close(fd)

    def _finish(self) -> None:
        complete = {
            folder: found for folder, found in self._fingerprints.items() if folder not in self._incomplete
        }
        with self.database as database:
            _delete(database, self._gone)
            database.executemany(
                "INSERT INTO changes VALUES ('removed', ?, NULL)", ((file.path,) for file in self._gone)
            )
            database.executemany(
                "UPDATE folders SET fingerprint = ? WHERE folder = ?",
                ((found, self._number(folder)) for folder, found in complete.items()),
            )
            database.executemany(
                "UPDATE folders SET fingerprint = NULL WHERE path = ?",
                ((folder,) for folder in self._incomplete),
            )
            if self._gone:
                database.execute("DELETE FROM folders WHERE folder NOT IN (SELECT folder FROM files)")
            finished = (time.time(), self.ctx.task_id)
            database.execute("UPDATE syncs SET finished_at = ? WHERE task_id = ?", finished)

    def result(self) -> dict[str, Any]:
        counted = dict(self.database.execute("SELECT change, count(*) FROM changes GROUP BY change"))
        counts = {change: counted.get(change, 0) for change in ("added", "changed", "removed", "renamed")}
        updated = counts["added"] + counts["changed"] + counts["renamed"]
        return {
            "files_processed": self.processed,
            "files_skipped": max(0, self.processed - updated),
            "files_updated": updated,
            **counts,
            "hashed_in_part": self.hashed_in_part,
            **self.problems.summary(),
        }

    def report(self) -> dict[str, Any]:
        """Return the first ten thousand changes and all problems."""
        rows = self.database.execute("SELECT change, path, was FROM changes LIMIT ?", (_REPORTED,))
        changes = [
            {"change": change, "path": shown(path), **({"was": shown(was)} if was is not None else {})}
            for change, path, was in rows
        ]
        return {"changes": changes, "problems": self.problems}


def _delete(database: sqlite3.Connection, files: list[Known]) -> None:
    names = ((file.folder, file.seen[0]) for file in files)
    database.executemany("DELETE FROM files WHERE folder = ? AND name = ?", names)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    """Return size, mtime_ns and inode as signed 64-bit integers."""
    return status.st_size, status.st_mtime_ns, status.st_ino & _SIGNED_64


def _hash_of_samples(fd: int, size: int) -> str:
    """Return a hash of the size and of samples, for large files."""
    digest = blake2b(str(size).encode(), digest_size=16)
    for sample in range(_SAMPLES):
        digest.update(os.pread(fd, _CHUNK, (size - _CHUNK) * sample // (_SAMPLES - 1)))
    return _PART + digest.hexdigest()


def _about_link(path: bytes) -> str:
    """Describe a symbolic link: broken, a loop, or not followed."""
    link = Path(os.fsdecode(path))
    try:
        target = link.resolve(strict=True)
    except FileNotFoundError:
        return "a symbolic link to nothing"
    except (OSError, RuntimeError):  # Python 3.11 and 3.12 raise RuntimeError for a loop
        return "a loop of symbolic links"
    return "a loop of symbolic links" if target in link.parents else "a symbolic link, not followed"
