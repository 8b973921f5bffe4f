"""The tables of a PostgreSQL store, written and read whole: for copying a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row, tuple_row

from ..config import without_password
from .copying import Table, Tables, Values
from .postgres_connection import driver_conninfo
from .postgres_errors import from_postgres
from .statements import for_table
from .transaction import UNFIT

_ROWS_AT_ONCE = 2_000


class PostgresTables(Tables):
    """Those of a PostgreSQL database. From `open` on, whoever writes tasks waits."""

    dialect = "postgres"
    _connection: psycopg.Connection[Any]

    @classmethod
    @contextmanager
    def open(cls, url: str) -> Iterator[PostgresTables]:
        # By another name, so that no keeper takes it for one of ours that fell silent.
        options: dict[str, Any] = {"application_name": "backburner migrate", "row_factory": dict_row}
        try:
            connection = psycopg.connect(driver_conninfo(url), **options)
        except psycopg.Error as error:
            raise from_postgres(without_password(url), error) from error
        with closing(connection):
            tables = cls(without_password(url), connection)
            with tables.telling_errors():
                tables.tx.run("wait_for_others")
                tables.tx.run("stop_counting")
                tables.tx.run("stop_numbering")
            yield tables

    @contextmanager
    def telling_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, *UNFIT) as error:
            raise from_postgres(self.url, error) from error

    def read(self, table: Table) -> Iterator[Values]:
        statement = for_table(self.dialect, "read_rows", table.name, table.columns).encode()
        with (
            self.telling_errors(),
            self._connection.cursor("rows", binary=True, row_factory=tuple_row) as cursor,
        ):
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(statement)
            yield from cursor

    def write(self, table: Table, rows: Iterator[Values]) -> None:
        statement = for_table(self.dialect, "write_rows", table.name, table.columns).encode()
        with self.telling_errors(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def finish(self, tables: Iterable[Table]) -> None:
        with self.telling_errors():
            for name in ("forget_counts", "count_at_once", "count_on", "number_events_on", "number_on"):
                self.tx.run(name)
            for table in tables:
                self._connection.execute(for_table(self.dialect, "learn_sizes", table.name).encode())

    def commit(self) -> None:
        with self.telling_errors():
            self._connection.commit()
