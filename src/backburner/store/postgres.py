"""The PostgreSQL store: a database shared by several hosts."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from ..core.times import Clock
from ..errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreTooNew,
    StoreUnavailable,
)
from ..settings import without_password
from .postgres_connection import (
    BoundedConnection,
    DatabaseClock,
    Pipeline,
    ServerIsSilent,
    driver_conninfo,
    prepare,
)
from .protocol import SqlStore, StoreSize
from .sql.statements import migrations, statements
from .sql.transaction import VALUE_ERRORS, GroupCommit, Job, RolledBack, Transaction, read, run_jobs
from .watch import ANYTHING, Watch, of_steering

T = TypeVar("T")
_Connection = psycopg.Connection[dict[str, Any]]

_MIGRATION_LOCK = 6238125500
_LARGEST_NOTICE = 7_000
_TRIES = 5
_PATIENCE_S = 5.0


class PostgresStore(SqlStore):
    """Tasks in a PostgreSQL database, shared by any number of hosts. The default clock is the database's."""

    shared = True

    def __init__(self, url: str, *, clock: Clock | None = None, pool_size: int = 8) -> None:
        self.url = without_password(url)
        self._database_clock = DatabaseClock()
        self.clock = clock or self._database_clock
        self._conninfo = driver_conninfo(url)
        self._silent_at = 0.0
        self._statements = statements("postgres")
        self._pool: ConnectionPool[BoundedConnection] = ConnectionPool(
            self._conninfo,
            connection_class=BoundedConnection,
            # Without a transaction, a statement takes one round trip instead of three.
            kwargs={"row_factory": dict_row, "autocommit": True},
            configure=lambda connection: prepare(connection, self._database_clock),
            check=self._check,
            min_size=1,
            max_size=pool_size + 1,  # for the writer
            open=False,
            timeout=_PATIENCE_S,
            # The pool backs off between its attempts; a new caller starts over.
            reconnect_timeout=_PATIENCE_S,
            name="backburner",
        )
        self._writer: BoundedConnection | None = None
        self._group = GroupCommit(self._run_group)
        try:
            with self._connect(autocommit=True) as connection:
                self._migrate(connection)
            self._pool.open(wait=False)
        except psycopg.Error as error:
            raise self._as_store_error(error) from error

    def _connect(self, **options: Any) -> _Connection:
        return psycopg.connect(self._conninfo, row_factory=dict_row, **options)

    def _check(self, connection: BoundedConnection) -> None:
        if not self._is_trusted(connection):
            raise ServerIsSilent("the connection is older than the last timeout of the server")

    def _is_trusted(self, connection: BoundedConnection) -> bool:
        """Close a connection that is older than the last timeout, or that the server has closed."""
        if connection.made_at > self._silent_at and connection.is_alive():
            return True
        connection.close()
        return False

    # -- migrations

    def _migrate(self, connection: _Connection) -> None:
        """Apply missing migrations. An advisory lock serializes hosts that start at the same time."""
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

    def version(self) -> int:
        return self._reading(_version_of)

    # -- reads and writes

    def _read(self, work: Callable[[Transaction], T], snapshot: bool = False) -> T:
        def read(connection: BoundedConnection) -> T:
            # A generic plan does not know the page size, and would sort the whole table.
            with Pipeline(connection, prepare=not snapshot) as pipeline:
                if snapshot:
                    pipeline.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", {})
                value = work(Transaction(pipeline, self._statements, self.clock.now_ms()))
                if snapshot:
                    pipeline.execute("COMMIT", {})
                    pipeline.sync()
                return value

        return self._reading(read)

    def _reading(self, work: Callable[[BoundedConnection], T]) -> T:
        """Run `work` without a transaction. Retries with another connection if the pool's was lost."""
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
            except (psycopg.Error, *VALUE_ERRORS) as error:
                if not tries_left or not isinstance(error, psycopg.OperationalError):
                    raise self._as_store_error(error) from error
                self._pool.check()
        raise AssertionError("the last try returns or raises")

    def _write(self, work: Callable[[Transaction], T], durable: bool = True) -> T:
        try:
            return self._group(work, durable)
        except (psycopg.Error, *VALUE_ERRORS) as error:
            raise self._as_store_error(error) from error

    def _run_group(self, jobs: list[Job[Any]]) -> None:
        """Run all jobs in one commit. Retries after a deadlock or a connection lost before the commit."""
        for attempt in range(1, _TRIES + 1):
            try:
                with self._writing() as connection:
                    return self._run_once(connection, jobs)
            except RolledBack as rolled_back:
                if isinstance(rolled_back.error, ServerIsSilent):
                    self._silent_at = time.monotonic()
                    raise rolled_back.error from rolled_back
                if attempt == _TRIES or not isinstance(rolled_back.error, psycopg.OperationalError):
                    raise
                self._pool.check()
            except ServerIsSilent:
                self._silent_at = time.monotonic()
                raise

    @contextmanager
    def _writing(self) -> Iterator[BoundedConnection]:
        """Yield the writer's connection, which stays out of the pool while it is alive."""
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
                pipeline.sync()
            except psycopg.Error as error:
                if connection.closed:  # it may be committed
                    raise
                raise RolledBack(error) from error

    def keep(self, holder: str, lease_s: float) -> bool:
        self._read(lambda tx: tx.all("terminate_silent_clients"))
        return super().keep(holder, lease_s)

    def follow_clock(self) -> None:
        """Nothing to do: the store uses the database's clock."""

    # -- disk space

    @read
    def size(self, tx: Transaction) -> StoreSize:
        (row,) = tx.all("database_size")
        return StoreSize(bytes=int(row["bytes"]))

    def give_back(self, keep_bytes: int = 0) -> int:
        """Nothing to do: autovacuum does it."""
        return 0

    # -- notifications, closing and errors

    def watch(self, *, steering: bool = False) -> Watch:
        """Listen on a separate connection."""
        try:
            channel = STEERING_CHANNEL if steering else CHANNEL
            return ListeningWatch(lambda: self._connect(autocommit=True), channel)
        except psycopg.Error as error:
            raise self._as_store_error(error) from error

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


#: Channels for all topics, and for those of the holders of leases.
CHANNEL, STEERING_CHANNEL = "backburner", "backburner_steering"
_PAUSE_S = 0.2

_WatchConnection = psycopg.Connection[Any]


class ListeningWatch:
    """A connection that listens. Its `fileno` stays the same after a reconnect.

    A thread reconnects while the server cannot be reached; then anything may have changed.
    """

    def __init__(self, connect: Callable[[], _WatchConnection], channel: str = CHANNEL) -> None:
        """Raises psycopg.Error."""
        self._connect = connect
        self._channel = channel
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: _WatchConnection | None = self._listening()
        self._back = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.epoll()
        self._poll.register(self._back, select.EPOLLIN)
        self._poll.register(self._connection.fileno(), select.EPOLLIN)

    def _listening(self) -> _WatchConnection:
        connection = self._connect()
        try:
            connection.execute(f"LISTEN {self._channel}")
        except BaseException:
            connection.close()
            raise
        return connection

    def fileno(self) -> int:
        return self._poll.fileno()

    def drain(self) -> set[str]:
        heard: set[str] = set()
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._back)
                heard.add(ANYTHING)
            if self._connection is None:
                return heard
            libpq = self._connection.pgconn
            try:
                libpq.consume_input()
                while (notice := libpq.notifies()) is not None:
                    heard.update(notice.extra.decode().split("\n"))
            except psycopg.Error:
                self._start_reconnect(self._connection)
        return heard

    def _start_reconnect(self, lost: _WatchConnection) -> None:
        lost.close()  # this removes it from the poll
        self._connection = None
        self._thread = threading.Thread(target=self._reconnect, name="backburner-listen", daemon=True)
        self._thread.start()

    def _reconnect(self) -> None:
        while not self._over.is_set():
            try:
                connection = self._listening()
            except psycopg.Error:
                self._over.wait(_PAUSE_S)
                continue
            with self._lock:
                self._connection = connection
                self._poll.register(connection.fileno(), select.EPOLLIN)
                os.eventfd_write(self._back, 1)
            return

    def wait(self, timeout_s: float | None = None) -> set[str]:
        self._poll.poll(None if timeout_s is None else max(0, timeout_s))
        return self.drain()

    def mend(self) -> None:
        """Nothing to do: `drain` notices a lost connection."""

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
        self._poll.close()
        os.close(self._back)


_REFUSALS = (psycopg.DataError, psycopg.IntegrityError, *VALUE_ERRORS)
_KINDS: tuple[tuple[tuple[str, ...], type[StoreError]], ...] = (
    (("53100", "53200"), StoreFull),
    (("25006", "42501"), StoreReadOnly),
    (("55P03", "40P01", "40001"), StoreBusy),
    (("XX001", "XX002"), StoreCorrupt),
)


def from_postgres(url: str, error: Exception) -> StoreError:
    """Return the StoreError for an error of PostgreSQL or its driver."""
    state = getattr(error, "sqlstate", None) or ""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, _REFUSALS) or state.startswith("54"):
        return StoreRefused(store=url, reason=reason)
    for states, kind in _KINDS:
        if state in states:
            return kind(store=url, reason=reason)
    unreachable = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    kind = StoreUnavailable if unreachable else StoreError
    return kind(store=url, reason=reason)
