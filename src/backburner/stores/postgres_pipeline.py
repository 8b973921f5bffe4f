"""Statements to PostgreSQL: prepared once, sent together, and waited for only when an answer is read.

They go through the driver's libpq and past its cursors, which cost more than the statement itself.
"""

from __future__ import annotations

import contextlib
import re
import select
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import count
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus, abc

from .postgres_connection import SILENCE_S, BoundedConnection, ServerIsSilent
from .transaction import Row

_PARAMETER = re.compile(r"%\((\w+)\)s")
_numbers = count(1)

#: By the numbers that types have in every PostgreSQL. All else is text.
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
    assert name is not None, "every column has one"
    return name.decode(), _LOADERS.get(result.ftype(at), bytes.decode)


@cache
def _for_libpq(sql: str) -> tuple[bytes, bytes, tuple[str, ...]]:
    """A name for the statement, its text with `$1` for the first parameter, and the parameters' names."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    text = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql).replace("%%", "%")
    return f"backburner_{next(_numbers)}".encode(), text.encode(), names


def _as_text(value: Any) -> bytes | None:
    """A parameter as libpq wants it. Raises what a driver raises for a value that no column can hold."""
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


class Answer:
    """What became of one statement: known when it is read."""

    def __init__(self, pipeline: Pipeline, statement: bytes) -> None:
        self._pipeline = pipeline
        self._statement = statement
        self.result: abc.PGresult | None = None

    def fetchall(self) -> list[Row]:
        if self.result is None:
            self._pipeline.settle()
        result = self.result
        assert result is not None, "what was settled has its answers"
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
    """A connection as a Transaction wants it, for one or more statements. A context manager.

    An error of the server's is raised by the first answer that is read after it, or by `settle`. When the
    block ends by an error, what is not committed is undone. `prepare=False` plans each statement anew.
    """

    def __init__(self, connection: BoundedConnection, *, prepare: bool = True) -> None:
        self._connection = connection
        self._libpq = connection.pgconn
        self._prepare = prepare
        self._sent: deque[Answer | bytes] = deque()  # a statement, or the name of one that is prepared

    def __enter__(self) -> Self:
        self._libpq.enter_pipeline_mode()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._undo()
            if not self._connection.closed:
                self._libpq.exit_pipeline_mode()
        except BaseException as fault:
            self._connection.close()
            if error is None or not isinstance(fault, psycopg.Error):
                raise

    def _undo(self) -> None:
        if self._sent:
            with contextlib.suppress(psycopg.Error):
                self.settle()
        if not self._connection.closed and self._libpq.transaction_status != TransactionStatus.IDLE:
            self.execute("ROLLBACK", {})
            self.settle()

    def execute(self, sql: str, parameters: Mapping[str, Any]) -> Answer:
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
        answer = Answer(self, name)
        self._sent.append(answer)
        return answer

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self.execute(sql, row)

    def columns(self, statement: bytes, result: abc.PGresult) -> Columns:
        """The columns of a statement's rows, each with what makes a value of it."""
        known = self._connection.prepared.get(statement)
        if known is None:
            known = [_column(result, at) for at in range(result.nfields)]
            if self._prepare:
                self._connection.prepared[statement] = known
        return known

    def settle(self) -> None:
        """Wait until all that was sent is done. Raises the first error that there was."""
        error: psycopg.Error | None = None
        self._libpq.pipeline_sync()
        try:
            self._send()
            while (result := self._next_result()).status != ExecStatus.PIPELINE_SYNC:
                sent = self._sent.popleft() if self._sent else None  # a server that goes says so unasked
                if isinstance(sent, Answer):
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
            if result is not None:  # None is what ends a statement's results
                return result

    def _wait(self, events: int) -> None:
        poller = select.poll()
        poller.register(self._libpq.socket, events)
        if not poller.poll(SILENCE_S * 1000):
            raise ServerIsSilent(f"the server said nothing for {SILENCE_S:g} s")
