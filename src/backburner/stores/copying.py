"""Copying all rows of a SQLite store into an empty store: in one transaction, and held against each other.

Tables and columns are those that the store has, so that what a later migration adds is copied too.
"""

from __future__ import annotations

import hashlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from ..errors import NotCopied
from .sqlite import sqlite_path
from .sqlite_errors import from_sqlite
from .statements import for_table, statements
from .transaction import UNFIT, Transaction

#: What processes say of themselves, and what triggers count and number. It is made anew where the tasks are.
LEFT_OUT = frozenset({"workers", "keeper", "queue_depth", "event_order"})

_BUSY_TIMEOUT_S = 10
_ROWS_AT_ONCE = 2_000

#: Told now and then what is being done, how many rows or bytes of it are done, and of how many.
Progress = Callable[[str, int, int], object]
Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A table that is in both stores: how many rows, and a checksum over them in any order."""

    rows: int
    checksum: str


class Tally:
    """Counts the rows that go through it and adds up their hashes: in any order it comes to the same."""

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
    """The tables of a store in one transaction, which is undone unless it is committed. Raises StoreError."""

    dialect: ClassVar[str]

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.tx = Transaction(connection, statements(self.dialect), 0)
        self._connection = connection

    @abstractmethod
    def telling_errors(self) -> AbstractContextManager[None]:
        """What the driver raises inside is a StoreError outside."""

    @abstractmethod
    def read(self, table: Table) -> Iterator[Values]: ...

    @abstractmethod
    def write(self, table: Table, rows: Iterator[Values]) -> None: ...

    @abstractmethod
    def finish(self, tables: Iterable[Table]) -> None:
        """When all rows are written: see to what the database keeps beside them."""

    @abstractmethod
    def commit(self) -> None: ...

    def count(self, table: str) -> int:
        with self.telling_errors():
            row = self._connection.execute(for_table(self.dialect, "count_rows", table), {}).fetchone()
            return int(row["rows"])

    def empty(self, table: Table) -> None:
        with self.telling_errors():
            self._connection.execute(for_table(self.dialect, "empty_table", table.name), {})


class SqliteTables(Tables):
    """Those of a SQLite file. As long as they are open, nobody else can write to it."""

    dialect = "sqlite"

    @classmethod
    @contextmanager
    def open(cls, url: str) -> Iterator[SqliteTables]:
        path = sqlite_path(url)
        with closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            tables = cls(url, connection)
            with tables.telling_errors():
                connection.execute("BEGIN IMMEDIATE")
            try:
                yield tables
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def telling_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, *UNFIT) as error:
            raise from_sqlite(self.url, sqlite_path(self.url), error) from error

    def all(self) -> list[Table]:
        """All that are copied."""
        with self.telling_errors():
            names = [row["name"] for row in self.tx.all("tables")]
        return [self._table(name) for name in names if name not in LEFT_OUT]

    def _table(self, name: str) -> Table:
        with self.telling_errors():
            columns = tuple(row["name"] for row in self.tx.all("columns", of_table=name))
        return Table(name, columns, self.count(name))

    def read(self, table: Table) -> Iterator[Values]:
        with self.telling_errors():
            cursor = self._connection.cursor()
            cursor.row_factory = None
            cursor.execute(for_table(self.dialect, "read_rows", table.name, table.columns))
            for row in cursor:  # noqa: UP028  `yield from` would close it, which fails after the connection
                yield row

    def write(self, table: Table, rows: Iterator[Values]) -> None:
        statement = for_table(self.dialect, "write_rows", table.name, table.columns)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            with self.telling_errors():
                self._connection.executemany(statement, some)

    def finish(self, tables: Iterable[Table]) -> None:
        """Triggers have counted what waits, and numbers go on after the highest."""

    def commit(self) -> None:
        with self.telling_errors():
            self._connection.execute("COMMIT")


def open_tables(url: str) -> AbstractContextManager[Tables]:
    """The tables of the store at `url`, which is there and up to date."""
    if url.startswith("sqlite:"):
        return SqliteTables.open(url)
    from .postgres_copying import PostgresTables

    return PostgresTables.open(url)


def copy_rows(source: SqliteTables, target: Tables, progress: Progress) -> dict[str, Copied]:
    """Copy every table, and read each back; what was copied, by table. The target is not committed yet.

    Raises NotCopied where the target has tasks, or the copy is another than what was read; and StoreError.
    """
    if tasks := target.count("tasks"):
        raise NotCopied(store=source.url, reason=has_tasks(target.url, tasks))
    tables, read = source.all(), {}
    for table in tables:
        tally = Tally()
        target.empty(table)
        target.write(table, _shown(tally.of(source.read(table)), table, "copying", progress))
        read[table.name] = tally.copied()
    target.finish(tables)
    for table in tables:
        tally = Tally()
        for _ in _shown(tally.of(target.read(table)), table, "checking", progress):
            pass
        if tally.copied() != read[table.name]:
            reason = f"table {table.name} came out as another in {target.url}; nothing was kept of the copy"
            raise NotCopied(store=source.url, reason=reason)
    return read


def has_tasks(url: str, tasks: int) -> str:
    """Why a store that is not empty is no place for a copy."""
    return (
        f"{url} has {tasks} tasks already, and only an empty store can take it. Name a new database or file"
    )


def _shown(rows: Iterator[Values], table: Table, doing: str, progress: Progress) -> Iterator[Values]:
    done = 0
    for row in rows:
        yield row
        done += 1
        if done % _ROWS_AT_ONCE == 0:
            progress(f"{doing} {table.name}", done, table.rows)
    progress(f"{doing} {table.name}", done, done)
