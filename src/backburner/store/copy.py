"""Copies of a SQLite store and its data folder into an empty store, verified row by row and file by file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from ..core.files import make_private
from ..errors import NotCopied
from ..settings import without_password
from .sql.statements import for_table, statements
from .sql.transaction import VALUE_ERRORS, Transaction
from .sqlite import from_sqlite, sqlite_path

#: Tables about running processes, and tables that triggers fill.
LEFT_OUT = frozenset({"workers", "keeper", "queue_depth", "event_order"})

_BUSY_TIMEOUT_S = 10
_ROWS_AT_ONCE = 2_000

#: Called now and then with a description of the step, the rows or bytes done, and their total.
Progress = Callable[[str, int, int], object]
Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A copied table: its number of rows, and a checksum that does not depend on their order."""

    rows: int
    checksum: str


class Tally:
    """Counts the rows that pass through, and sums their hashes."""

    def __init__(self) -> None:
        self._rows = 0
        self._sum = 0

    def of(self, rows: Iterable[Values]) -> Iterator[Values]:
        for row in rows:
            self._rows += 1
            digest = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            self._sum += int.from_bytes(digest)
            yield row

    def copied(self) -> Copied:
        return Copied(self._rows, f"{self._sum % (1 << 128):032x}")


class Tables(ABC):
    """The tables of a store in one transaction, rolled back unless it is committed. Raises StoreError."""

    dialect: ClassVar[str]

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.tx = Transaction(connection, statements(self.dialect), 0)
        self._connection = connection

    @abstractmethod
    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise the driver's errors as StoreError."""

    @abstractmethod
    def read(self, table: Table) -> Iterator[Values]: ...

    @abstractmethod
    def write(self, table: Table, rows: Iterator[Values]) -> None: ...

    @abstractmethod
    def finish(self, tables: Iterable[Table]) -> None:
        """Complete the copy when all rows are written."""

    def commit(self) -> None:
        with self.translate_errors():
            self._connection.commit()

    def count(self, table: str) -> int:
        with self.translate_errors():
            row = self._connection.execute(for_table(self.dialect, "count_rows", table), {}).fetchone()
            return int(row["rows"])

    def empty(self, table: Table) -> None:
        with self.translate_errors():
            self._connection.execute(for_table(self.dialect, "empty_table", table.name), {})


class SqliteTables(Tables):
    """The tables of a SQLite file, which is locked for other writers."""

    dialect = "sqlite"

    @classmethod
    @contextmanager
    def open(cls, url: str) -> Iterator[SqliteTables]:
        path = sqlite_path(url)
        with closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            tables = cls(url, connection)
            with tables.translate_errors():
                connection.execute("BEGIN IMMEDIATE")
            try:
                yield tables
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, *VALUE_ERRORS) as error:
            raise from_sqlite(self.url, sqlite_path(self.url), error) from error

    def all(self) -> list[Table]:
        """Return the tables to copy."""
        with self.translate_errors():
            names = [row["name"] for row in self.tx.all("tables")]
            columns = {
                name: tuple(row["name"] for row in self.tx.all("columns", of_table=name))
                for name in names
                if name not in LEFT_OUT
            }
        return [Table(name, found, self.count(name)) for name, found in columns.items()]

    def read(self, table: Table) -> Iterator[Values]:
        with self.translate_errors():
            cursor = self._connection.cursor()
            cursor.row_factory = None
            cursor.execute(for_table(self.dialect, "read_rows", table.name, table.columns))
            for row in cursor:  # noqa: UP028  `yield from` would close it, which fails after the connection
                yield row

    def write(self, table: Table, rows: Iterator[Values]) -> None:
        statement = for_table(self.dialect, "write_rows", table.name, table.columns)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            with self.translate_errors():
                self._connection.executemany(statement, some)

    def finish(self, tables: Iterable[Table]) -> None:
        """Nothing to do: triggers have counted the queued tasks."""


class PostgresTables(Tables):
    """The tables of a PostgreSQL database, locked for other writers of tasks."""

    dialect = "postgres"

    @classmethod
    @contextmanager
    def open(cls, url: str) -> Iterator[PostgresTables]:
        import psycopg
        from psycopg.rows import dict_row

        from .postgres import from_postgres
        from .postgres_connection import driver_conninfo

        # Another application name, so that no keeper terminates it as a silent client.
        options: dict[str, Any] = {"application_name": "backburner migrate", "row_factory": dict_row}
        try:
            connection = psycopg.connect(driver_conninfo(url), **options)
        except psycopg.Error as error:
            raise from_postgres(without_password(url), error) from error
        with closing(connection):
            tables = cls(without_password(url), connection)
            with tables.translate_errors():
                for name in ("set_lock_timeout", "disable_queue_counts", "disable_event_order"):
                    tables.tx.run(name)
            yield tables

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        import psycopg

        from .postgres import from_postgres

        try:
            yield
        except (psycopg.Error, *VALUE_ERRORS) as error:
            raise from_postgres(self.url, error) from error

    def read(self, table: Table) -> Iterator[Values]:
        from psycopg.rows import tuple_row

        statement = for_table(self.dialect, "read_rows", table.name, table.columns)
        with (
            self.translate_errors(),
            self._connection.cursor("rows", binary=True, row_factory=tuple_row) as cursor,
        ):
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(statement)
            yield from cursor

    def write(self, table: Table, rows: Iterator[Values]) -> None:
        statement = for_table(self.dialect, "write_rows", table.name, table.columns)
        with self.translate_errors(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def finish(self, tables: Iterable[Table]) -> None:
        with self.translate_errors():
            for name in (
                *("delete_queue_counts", "count_queued", "enable_queue_counts", "enable_event_order"),
                "advance_task_sequence",
            ):
                self.tx.run(name)
            for table in tables:
                self._connection.execute(for_table(self.dialect, "analyze_table", table.name))


def open_tables(url: str) -> AbstractContextManager[Tables]:
    """Open the tables of an existing, migrated store."""
    return SqliteTables.open(url) if url.startswith("sqlite:") else PostgresTables.open(url)


def copy_rows(source: SqliteTables, target: Tables, progress: Progress) -> dict[str, Copied]:
    """Copy every table, and read each back. The caller commits the target.

    Raises NotCopied if the target has tasks or a copy differs, and StoreError.
    """
    if tasks := target.count("tasks"):
        raise NotCopied(store=source.url, reason=has_tasks(target.url, tasks))
    tables, read = source.all(), {}
    for table in tables:
        tally = Tally()
        target.empty(table)
        target.write(table, _report(tally.of(source.read(table)), table, "copying", progress))
        read[table.name] = tally.copied()
    target.finish(tables)
    for table in tables:
        tally = Tally()
        for _ in _report(tally.of(target.read(table)), table, "checking", progress):
            pass
        if tally.copied() != read[table.name]:
            reason = f"table {table.name} differs in {target.url}; the copy was rolled back"
            raise NotCopied(store=source.url, reason=reason)
    return read


def has_tasks(url: str, tasks: int) -> str:
    """Return the reason why a store is not empty."""
    return f"{url} has {tasks} tasks already, and the target must be empty. Name a new database or file"


def _report(rows: Iterator[Values], table: Table, step: str, progress: Progress) -> Iterator[Values]:
    done = 0
    for row in rows:
        yield row
        done += 1
        if done % _ROWS_AT_ONCE == 0:
            progress(f"{step} {table.name}", done, table.rows)
    progress(f"{step} {table.name}", done, done)


# -- files ---------------------------------------------------------------------------------------

#: Files of the processes of one host: locks, sockets and logs.
_OF_PROCESSES = ("wake", "*.lock", "clock.json", "submit.key", "supervisor.*", ".*")
_TEMPORARY = ".being-copied"


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    files: int = 0
    bytes: int = 0


class FolderCopy:
    """A copy of a data folder, which can be undone."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._made: list[Path] = []

    def run(self, progress: Progress) -> CopiedFiles:
        """Copy all files of tasks, unless both are the same folder.

        Raises OSError, and FileExistsError for an existing file with other contents.
        """
        same = self._target.exists() and self._source.samefile(self._target)
        if not self._source.is_dir() or same:
            return CopiedFiles()
        entries = {path: self._target / path.relative_to(self._source) for path in _entries(self._source)}
        total = sum(path.stat().st_size for path in entries if _is_file(path))
        files = done = 0
        folders: dict[Path, Path] = {}
        for path, to in entries.items():
            if path.is_symlink() or _is_file(path):
                done += self._copy(path, to)
                files += 1
                progress("copying files, in bytes", done, total)
            elif path.is_dir() and not to.is_dir():
                self._make_folder(to)
                folders[path] = to
        for path, to in folders.items():  # last, since a folder may be read-only
            _copy_attributes(path, to)
        return CopiedFiles(files, done)

    def take_back(self) -> None:
        """Remove what this copy has made."""
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        self._made.clear()

    def _make_folder(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        make_private(folder)
        self._made += reversed(missing)

    def _copy(self, path: Path, to: Path) -> int:
        """Copy a file or link, and return its bytes. A file gets its name once it is verified."""
        self._make_folder(to.parent)
        if path.is_symlink():
            if not to.is_symlink():
                to.symlink_to(path.readlink())
                self._made.append(to)
            return 0
        if to.exists():
            if _digest(path) != _digest(to):
                raise FileExistsError(f"{to} exists and differs from {path}")
            return to.stat().st_size
        temporary = to.with_name(f".{to.name[:200]}{_TEMPORARY}")
        self._made.append(temporary)
        shutil.copyfile(path, temporary)
        _copy_attributes(path, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        if _digest(path) != _digest(temporary):
            raise OSError(f"{temporary} differs from {path} after it was copied")
        temporary.rename(to)
        self._made[-1] = to
        return to.stat().st_size


def _entries(folder: Path) -> Iterator[Path]:
    """Yield files and folders to copy, a folder before its contents."""
    for path in sorted(folder.iterdir()):
        if not any(fnmatchcase(path.name, pattern) for pattern in _OF_PROCESSES):
            yield path
            if path.is_dir() and not path.is_symlink():
                for inside, folders, files in os.walk(path):
                    yield from (Path(inside, name) for name in sorted([*folders, *files]))


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _copy_attributes(path: Path, to: Path) -> None:
    """Copy mode and times, and as root the owner, since tools may run as other users."""
    shutil.copystat(path, to)
    found = path.stat()
    if os.geteuid() == 0:
        os.chown(to, found.st_uid, found.st_gid)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
