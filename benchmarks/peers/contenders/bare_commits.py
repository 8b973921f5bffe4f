"""Not a contender: what one commit costs on this disk. A task is one row, on disk when `submit` returns."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shapes import Contender, main


class BareCommits(Contender):
    def __init__(self, path: str) -> None:
        self._path = path
        self._own = threading.local()
        self._connection().execute("CREATE TABLE rows (row TEXT)")

    def submit(self) -> int:
        self._connection().execute("INSERT INTO rows VALUES ('row')")
        return time.time_ns()

    def result(self, handle: int) -> int:
        return handle

    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._own, "connection"):
            self._own.connection = sqlite3.connect(self._path, isolation_level=None, timeout=60)
            self._own.connection.execute("PRAGMA journal_mode = WAL")
            self._own.connection.execute("PRAGMA synchronous = FULL")
        connection: sqlite3.Connection = self._own.connection
        return connection


@contextmanager
def made(url: str) -> Iterator[BareCommits]:
    yield BareCommits(url)


if __name__ == "__main__":
    main(made)
