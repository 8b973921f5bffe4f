"""The PostgreSQL store: for more than one host, or where a database is kept already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from ..clock import Clock
from ..config import without_password
from ..errors import StoreError, StoreTooNew
from ..store import StoreSize
from ..watch import ANYTHING, Watch, of_steering
from .postgres_connection import BoundedConnection, DatabaseClock, ServerIsSilent, driver_conninfo, prepare
from .postgres_errors import from_postgres
from .postgres_pipeline import Pipeline
from .postgres_watch import CHANNEL, STEERING_CHANNEL, ListeningWatch
from .sql_store import SqlStore
from .statements import migrations, statements
from .transaction import UNFIT, GroupCommit, Job, Transaction, Undone, run_jobs

T = TypeVar("T")
_Connection = psycopg.Connection[dict[str, Any]]

_MIGRATION_LOCK = 6238125500
_LARGEST_NOTICE = 7_000
_TRIES = 5
_PATIENCE_S = 5.0


class PostgresStore(SqlStore):
    """Tasks in a PostgreSQL database, shared by any number of hosts."""

    shared = True

    def __init__(self, url: str, *, clock: Clock | None = None, pool_size: int = 8) -> None:
        """Without a clock it goes by the database's."""
        self.url = without_password(url)
        self._measured = DatabaseClock()
        self.clock = clock or self._measured
        self._conninfo = driver_conninfo(url)
        self._silent_at = 0.0
        self._statements = statements("postgres")
        self._pool: ConnectionPool[BoundedConnection] = ConnectionPool(
            self._conninfo,
            connection_class=BoundedConnection,
            # Without a transaction around it, a statement takes one round trip and not three.
            kwargs={"row_factory": dict_row, "autocommit": True},
            configure=self._configure,
            check=self._check,
            min_size=1,
            max_size=pool_size + 1,  # one is the writer's
            open=False,
            timeout=_PATIENCE_S,
            # Between its attempts the pool waits longer and longer; a caller that comes anew starts anew.
            reconnect_timeout=_PATIENCE_S,
            name="backburner",
        )
        self._writer: BoundedConnection | None = None
        self._group = GroupCommit(self._run_group)
        try:
            with self._connect(autocommit=True) as connection:
                self._migrate(connection)
                self._quicken(connection)
            self._pool.open(wait=False)
        except psycopg.Error as error:
            raise self._as_store_error(error) from error

    def _connect(self, **options: Any) -> _Connection:
        return psycopg.connect(self._conninfo, row_factory=dict_row, **options)

    def _configure(self, connection: _Connection) -> None:
        prepare(connection, self._measured)

    def _check(self, connection: BoundedConnection) -> None:
        if not self._is_trusted(connection):
            raise ServerIsSilent("it was made before the server fell silent")

    def _is_trusted(self, connection: BoundedConnection) -> bool:
        """Not what was made before the server fell silent, nor what it has ended; that is closed."""
        if connection.made_at > self._silent_at and connection.is_well():
            return True
        connection.close()
        return False

    # -- migrations

    def _migrate(self, connection: _Connection) -> None:
        """Bring the schema up to date; hosts that start at the same time take turns."""
        known = migrations("postgres")
        if _version_of(connection) == known[-1][0]:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            connection.execute("CREATE TABLE IF NOT EXISTS backburner_version (version BIGINT PRIMARY KEY)")
            version = _version_of(connection)
            if version > known[-1][0]:
                raise StoreTooNew(store=self.url, found=version, known=known[-1][0])
            for number, _, script in known[version:]:
                connection.execute(script.encode())
                connection.execute("INSERT INTO backburner_version VALUES (%s)", (number,))

    def _quicken(self, connection: _Connection) -> None:
        """Say better what a migration said, where nobody did yet; who may not do that goes on without."""
        slow, quick = self._statements["counts_slowly"].encode(), self._statements["count_quickly"].encode()
        if connection.execute(slow).fetchone() is None:
            return
        with suppress(psycopg.Error), connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            if connection.execute(slow).fetchone() is not None:
                connection.execute(quick)

    def version(self) -> int:
        return self._reading(_version_of)

    def secret(self) -> bytes:
        row = self._reading(
            lambda connection: connection.execute("SELECT secret FROM store_secret").fetchone()
        )
        assert row is not None, "the first migration puts it there"
        return bytes(row["secret"])

    # -- reading and writing

    def _read(self, work: Callable[[Transaction], T], snapshot: bool = False) -> T:
        def read(connection: BoundedConnection) -> T:
            # A plan for any values does not know how short a page is, and would sort the whole table.
            with Pipeline(connection, prepare=not snapshot) as pipeline:
                if snapshot:
                    pipeline.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", {})
                value = work(Transaction(pipeline, self._statements, self.clock.now_ms()))
                if snapshot:
                    pipeline.execute("COMMIT", {})
                    pipeline.settle()
                return value

        return self._reading(read)

    def _reading(self, work: Callable[[BoundedConnection], T]) -> T:
        """Run `work`, each statement by itself; on another connection if the pool's has died meanwhile."""
        for tries_left in reversed(range(_TRIES)):
            try:
                connection = self._pool.getconn()
                try:
                    return work(connection)
                finally:
                    self._pool.putconn(connection)
            except (PoolTimeout, PoolClosed) as error:
                raise self._as_store_error(error) from error
            except ServerIsSilent as error:
                self._silent_at = time.monotonic()
                raise self._as_store_error(error) from error
            except (psycopg.Error, *UNFIT) as error:
                if not tries_left or not isinstance(error, psycopg.OperationalError):
                    raise self._as_store_error(error) from error
                self._pool.check()
        raise AssertionError("the last try returns or raises")

    def _write(self, work: Callable[[Transaction], T], durable: bool = True) -> T:
        try:
            return self._group(work, durable)
        except (psycopg.Error, *UNFIT) as error:
            raise self._as_store_error(error) from error

    def _run_group(self, jobs: list[Job[Any]]) -> None:
        """All jobs in one commit. What a deadlock or a lost connection broke before it is tried again."""
        for attempt in range(1, _TRIES + 1):
            try:
                with self._writing() as connection:
                    return self._run_once(connection, jobs)
            except Undone as undone:
                if isinstance(undone.error, ServerIsSilent):
                    self._silent_at = time.monotonic()
                    raise undone.error from undone
                if attempt == _TRIES or not isinstance(undone.error, psycopg.OperationalError):
                    raise
                self._pool.check()
            except ServerIsSilent:
                self._silent_at = time.monotonic()
                raise

    @contextmanager
    def _writing(self) -> Iterator[BoundedConnection]:
        """The connection of the one who writes. It stays out of the pool as long as it is well."""
        connection, self._writer = self._writer, None
        if connection is not None and not self._is_trusted(connection):
            self._pool.putconn(connection)
            connection = None
        connection = connection or self._pool.getconn()
        try:
            yield connection
        finally:
            if connection.closed or self._pool.closed:
                self._pool.putconn(connection)
            else:
                self._writer = connection

    def _run_once(self, connection: BoundedConnection, jobs: list[Job[Any]]) -> None:
        with Pipeline(connection) as pipeline:
            tx = Transaction(pipeline, self._statements, self.clock.now_ms())
            pipeline.execute("BEGIN", {})
            run_jobs(tx, jobs)
            if tx.topics:
                tx.run("notify", channel=CHANNEL, topics=_notice(tx.topics))
            if steering := of_steering(tx.topics):
                tx.run("notify", channel=STEERING_CHANNEL, topics=_notice(steering))
            pipeline.execute("COMMIT", {})
            try:
                pipeline.settle()
            except psycopg.Error as error:
                if connection.closed:  # whether it was committed is not known
                    raise
                raise Undone(error) from error

    def keep(self, holder: str, lease_s: float) -> bool:
        self._all("end_silent_clients")
        return super().keep(holder, lease_s)

    def follow_clock(self) -> None:
        """The database's clock is asked, and not this host's."""

    # -- the room that it takes

    def size(self) -> StoreSize:
        (row,) = self._all("database_size")
        return StoreSize(bytes=int(row["bytes"]))

    def give_back(self, keep_bytes: int = 0) -> int:
        """Autovacuum does it."""
        return 0

    def compact(self) -> None:
        """`VACUUM FULL` would lock every table, and is for the database's administrator to run."""

    # -- waking up

    def watch(self, *, steering: bool = False) -> Watch:
        """Hear NOTIFY on a connection of its own; after a lost connection, anything may have changed."""
        try:
            channel = STEERING_CHANNEL if steering else CHANNEL
            return ListeningWatch(lambda: self._connect(autocommit=True), channel)
        except psycopg.Error as error:
            raise self._as_store_error(error) from error

    # -- ending, and errors

    def close(self) -> None:
        self._pool.close()
        if self._writer is not None:
            self._writer.close()

    def _as_store_error(self, error: Exception) -> StoreError:
        return from_postgres(self.url, error)


def _version_of(connection: _Connection) -> int:
    there = connection.execute("SELECT to_regclass('backburner_version') IS NOT NULL AS there").fetchone()
    if not (there and there["there"]):
        return 0
    row = connection.execute("SELECT max(version) AS version FROM backburner_version").fetchone()
    return (row and row["version"]) or 0


def _notice(topics: set[str]) -> str:
    text = "\n".join(topics)
    return text if len(text.encode()) <= _LARGEST_NOTICE else ANYTHING
