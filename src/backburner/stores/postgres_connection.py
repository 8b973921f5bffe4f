"""Connections to PostgreSQL that never wait for ever, and the database's clock as they measure it."""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
import psycopg.rows
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..clock import SystemClock
from ..errors import ConfigError

T = TypeVar("T")

#: How long a server may say nothing while it is asked something. Far less than the default grace time.
SILENCE_S = 10.0

#: What the driver is told where the URL leaves it open. A host that vanished is noticed, also by who listens.
_OPTIONS: dict[str, str | int | None] = {
    "application_name": "backburner",
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": int(SILENCE_S * 1000),
}


#: How long the server keeps a transaction, and what it has locked, for a client that says nothing: who is
#: stopped or cut off in the middle of a write must not hold up those who take its place.
_SILENT_CLIENT = "SELECT set_config('idle_in_transaction_session_timeout', '5000', false)"


class ServerIsSilent(psycopg.OperationalError):
    """The server did not answer in time. Whether it did what it was asked is not known."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed when its server says nothing for `SILENCE_S` while it is asked something.

    TCP alone does not notice a connection that something on the way keeps open and lets nothing through.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made_at = time.monotonic()
        #: The statements that the server knows by a name, and the columns of their rows once there were some.
        self.prepared: dict[bytes, Any] = {}

    def is_well(self) -> bool:
        """Whether the server has not hung up meanwhile: it says nothing while it is asked nothing."""
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
    """The same generator, but it raises ServerIsSilent when it is told too long that nothing is ready."""
    deadline = time.monotonic() + SILENCE_S
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                deadline = time.monotonic() + SILENCE_S
            elif time.monotonic() > deadline:
                gen.close()
                raise ServerIsSilent(f"the server said nothing for {SILENCE_S:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        value: T = end.value
        return value


class DatabaseClock(SystemClock):
    """Wall time as the database has it, measured whenever a connection is made.

    In between it goes on by a clock that cannot be set; so hosts agree, whatever their own clocks say.
    """

    def __init__(self) -> None:
        self._offset_ms: int | None = None

    def measure(self, connection: psycopg.Connection[Any]) -> None:
        """Ask the database for its time."""
        began = self.uptime_ms()
        with connection.cursor(row_factory=psycopg.rows.scalar_row) as cursor:
            cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            theirs = cursor.fetchone()
        assert theirs is not None, "it gives one row"
        self._offset_ms = theirs - (began + self.uptime_ms()) // 2

    def now_ms(self) -> int:
        return super().now_ms() if self._offset_ms is None else self.uptime_ms() + self._offset_ms


def prepare(connection: psycopg.Connection[Any], clock: DatabaseClock) -> None:
    """Make a new connection ready for use."""
    connection.execute(_SILENT_CLIENT)
    clock.measure(connection)


def driver_conninfo(url: str) -> str:
    """The URL for the driver, with what it leaves open. Raises ConfigError."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise ConfigError(setting="store", reason=str(error).strip()) from error
    left_open = {name: value for name, value in _OPTIONS.items() if name not in given}
    return make_conninfo(url, **left_open, client_encoding="utf8")
