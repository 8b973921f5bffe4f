"""PostgreSQL connections with timeouts, and pipelined prepared statements."""

from __future__ import annotations

import contextlib
import re
import select
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
import psycopg.rows
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus, abc

from ..core.times import SystemClock
from ..errors import ConfigError
from .sql.transaction import Row

T = TypeVar("T")

#: The longest wait for a response. Far less than the default grace time of leases.
SILENCE_S = 10.0

#: Defaults of connection parameters. Keepalives detect a host that vanished, also on a listening connection.
_OPTIONS: dict[str, str | int | None] = {
    "application_name": "backburner",
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": int(SILENCE_S * 1000),
}


#: The server ends the transaction of a client that was stopped or cut off, which releases its locks.
_IDLE_TIMEOUT = "SELECT set_config('idle_in_transaction_session_timeout', '5000', false)"


class ServerIsSilent(psycopg.OperationalError):
    """The server did not respond in time. The statement may have run."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed when a response takes longer than `SILENCE_S`.

    TCP does not notice when a middlebox keeps the connection open and drops its packets.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made_at = time.monotonic()
        #: The prepared statements, with the columns of their rows once they are known.
        self.prepared: dict[bytes, Any] = {}

    def is_alive(self) -> bool:
        """Return whether the server has not closed the idle connection, which would make it readable."""
        if self.closed:
            return False
        poller = select.poll()
        poller.register(self.pgconn.socket, select.POLLIN)
        return not poller.poll(0)

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        try:
            return super().wait(_bounded(gen), *args, **options)
        except ServerIsSilent:
            self.close()
            raise


def _bounded(gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """Wrap a driver's generator, and raise ServerIsSilent when nothing is ready for too long."""
    deadline = time.monotonic() + SILENCE_S
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                deadline = time.monotonic() + SILENCE_S
            elif time.monotonic() > deadline:
                gen.close()
                raise ServerIsSilent(f"the server did not respond for {SILENCE_S:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        value: T = end.value
        return value


class DatabaseClock(SystemClock):
    """The database's wall time, measured with each new connection and advanced by the monotonic clock.

    So all hosts agree, even if their own clocks differ.
    """

    def __init__(self) -> None:
        self._offset_ms: int | None = None

    def measure(self, connection: psycopg.Connection[Any]) -> None:
        began = self.uptime_ms()
        with connection.cursor(row_factory=psycopg.rows.scalar_row) as cursor:
            cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            theirs = cursor.fetchone()
        assert theirs is not None, "the statement returns one row"
        self._offset_ms = theirs - (began + self.uptime_ms()) // 2

    def now_ms(self) -> int:
        return super().now_ms() if self._offset_ms is None else self.uptime_ms() + self._offset_ms


def prepare(connection: psycopg.Connection[Any], clock: DatabaseClock) -> None:
    """Set up a new connection."""
    connection.execute(_IDLE_TIMEOUT)
    clock.measure(connection)


def driver_conninfo(url: str) -> str:
    """Return the URL with the defaults of parameters that it leaves out. Raises ConfigError."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise ConfigError(setting="store", reason=str(error).strip()) from error
    left_open = {name: value for name, value in _OPTIONS.items() if name not in given}
    return make_conninfo(url, **left_open, client_encoding="utf8")


_PARAMETER = re.compile(r"%\((\w+)\)s")
_numbers = count(1)

#: Decoders by the type's object id; other types are text.
_LOADERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda value: value == b"t",
    17: lambda value: bytes.fromhex(value[2:].decode()),
    20: int,
    21: int,
    23: int,
    701: float,
    1700: float,
}
Columns = list[tuple[str, Callable[[bytes], Any]]]


def _column(result: abc.PGresult, at: int) -> tuple[str, Callable[[bytes], Any]]:
    name = result.fname(at)
    assert name is not None, "every column has a name"
    return name.decode(), _LOADERS.get(result.ftype(at), bytes.decode)


@cache
def _for_libpq(sql: str) -> tuple[bytes, bytes, tuple[str, ...]]:
    """Return a name for the statement, its text with `$n` parameters, and their names."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    text = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql).replace("%%", "%")
    return f"backburner_{next(_numbers)}".encode(), text.encode(), names


def _as_text(value: Any) -> bytes | None:
    """Return a parameter as text. Raises TypeError or DataError if no column can hold it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if not isinstance(value, str | int | float):
        raise TypeError(f"no column takes a {type(value).__name__}")
    text = str(value).encode()
    if b"\0" in text:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text


class PipelineResult:
    """The result of a statement, which reading waits for."""

    def __init__(self, pipeline: Pipeline, statement: bytes) -> None:
        self._pipeline = pipeline
        self._statement = statement
        self.result: abc.PGresult | None = None

    def fetchall(self) -> list[Row]:
        if self.result is None:
            self._pipeline.sync()
        result = self.result
        assert result is not None, "a synced statement has a result"
        if not result.ntuples:
            return []
        columns = self._pipeline.columns(self._statement, result)
        return [
            {
                name: None if (value := result.get_value(row, at)) is None else load(value)
                for at, (name, load) in enumerate(columns)
            }
            for row in range(result.ntuples)
        ]

    def fetchone(self) -> Row | None:
        rows = self.fetchall()
        return rows[0] if rows else None


class Pipeline:
    """A connection in libpq's pipeline mode, for use by a Transaction. A context manager.

    A server's error is raised by the first result that is read after it, or by `sync`. A block that raises is
    rolled back. `prepare=False` plans each statement for its parameters.
    """

    def __init__(self, connection: BoundedConnection, *, prepare: bool = True) -> None:
        self._connection = connection
        self._libpq = connection.pgconn
        self._prepare = prepare
        self._sent: deque[PipelineResult | bytes] = deque()  # a statement, or the name of one being prepared

    def __enter__(self) -> Self:
        self._libpq.enter_pipeline_mode()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._roll_back()
            if not self._connection.closed:
                self._libpq.exit_pipeline_mode()
        except BaseException as fault:
            self._connection.close()
            if error is None or not isinstance(fault, psycopg.Error):
                raise

    def _roll_back(self) -> None:
        if self._sent:
            with contextlib.suppress(psycopg.Error):
                self.sync()
        if not self._connection.closed and self._libpq.transaction_status != TransactionStatus.IDLE:
            self.execute("ROLLBACK", {})
            self.sync()

    def execute(self, sql: str, parameters: Mapping[str, Any]) -> PipelineResult:
        name, text, names = _for_libpq(sql)
        values = [_as_text(parameters[name]) for name in names]
        if not self._prepare:
            self._libpq.send_query_params(text, values)
        else:
            if name not in self._connection.prepared:
                self._libpq.send_prepare(name, text)
                self._connection.prepared[name] = None
                self._sent.append(name)
            self._libpq.send_query_prepared(name, values)
        result = PipelineResult(self, name)
        self._sent.append(result)
        return result

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self.execute(sql, row)

    def columns(self, statement: bytes, result: abc.PGresult) -> Columns:
        """Return the names and decoders of a statement's columns."""
        known = self._connection.prepared.get(statement)
        if known is None:
            known = [_column(result, at) for at in range(result.nfields)]
            if self._prepare:
                self._connection.prepared[statement] = known
        return known

    def sync(self) -> None:
        """Wait for all results. Raises the first error."""
        error: psycopg.Error | None = None
        self._libpq.pipeline_sync()
        try:
            self._send()
            while (result := self._next_result()).status != ExecStatus.PIPELINE_SYNC:
                # A server that shuts down sends an error that belongs to no statement.
                sent = self._sent.popleft() if self._sent else None
                if isinstance(sent, PipelineResult):
                    sent.result = result
                elif sent is not None and result.status != ExecStatus.COMMAND_OK:
                    self._connection.prepared.pop(sent)
                if result.status == ExecStatus.FATAL_ERROR and error is None:
                    error = psycopg.errors.error_from_result(result)
        except BaseException:
            self._connection.close()
            raise
        if error is not None:
            raise error

    def _send(self) -> None:
        while self._libpq.flush():
            self._wait(select.POLLIN | select.POLLOUT)
            self._libpq.consume_input()

    def _next_result(self) -> abc.PGresult:
        while True:
            while self._libpq.is_busy():
                self._wait(select.POLLIN)
                self._libpq.consume_input()
            result = self._libpq.get_result()
            if self._libpq.status == ConnStatus.BAD:
                raise psycopg.OperationalError(self._libpq.get_error_message())
            if result is not None:  # None ends the results of a statement
                return result

    def _wait(self, events: int) -> None:
        poller = select.poll()
        poller.register(self._libpq.socket, events)
        if not poller.poll(SILENCE_S * 1000):
            raise ServerIsSilent(f"the server did not respond for {SILENCE_S:g} s")
