"""Transactions on either database, the decorators of store methods, and group commit."""

from __future__ import annotations

import functools
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from ...core import json_text
from ...core.lifecycle import Signal, State
from ...core.times import Clock
from ...errors import BackburnerError
from ..watch import Watch

T = TypeVar("T")
P = ParamSpec("P")

#: Errors that a driver raises, beside its own, for a value that no column can hold.
VALUE_ERRORS = (OverflowError, UnicodeError, TypeError)
Row = Mapping[str, Any]


class Connection(Protocol):
    """The methods that the connections of both drivers share."""

    def execute(self, sql: str, parameters: Mapping[str, Any], /) -> Any: ...

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Any]], /) -> Any: ...


class Result(Protocol):
    """The result of a statement. Reading it may wait for the server."""

    def fetchall(self) -> list[Row]: ...

    def fetchone(self) -> Row | None: ...


class Transaction:
    """Named statements on one connection, with one timestamp, and the topics to announce at the commit."""

    def __init__(self, connection: Any, statements: Mapping[str, str], now: int) -> None:
        self._connection: Connection = connection
        self._statements = statements
        self.now = now
        self.topics: set[str] = set()
        #: The earliest time at which a task that was delayed here becomes ready.
        self.due_at: int | None = None
        self.known: tuple[Watch, frozenset[str]] | None = None
        self._deferred: dict[str, list[Mapping[str, Any]]] = {}

    def send(self, name: str, /, **parameters: Any) -> Result:
        """Start a statement whose result is read later. Statements sent together share a round trip."""
        result: Result = self._connection.execute(self._statements[name], parameters)
        return result

    def mark_known(self, watch: Watch | None) -> None:
        """Do not announce the topics so far to this watch."""
        if watch is not None:
            self.known = watch, frozenset(self.topics)

    def set_due(self, at: int) -> None:
        self.due_at = at if self.due_at is None else min(self.due_at, at)

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        return self.send(name, **parameters).fetchall()

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        return self.send(name, **parameters).fetchone()

    def run(self, name: str, /, **parameters: Any) -> None:
        self._connection.execute(self._statements[name], parameters)

    def many(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self._connection.executemany(self._statements[name], rows)

    def defer(self, name: str, /, **parameters: Any) -> None:
        """Queue a write for `flush`, which runs all writes of one statement together.

        Only for writes that depend on no other deferred write and that nothing reads before the flush.
        """
        self._deferred.setdefault(name, []).append(parameters)

    def flush(self) -> None:
        deferred, self._deferred = self._deferred, {}
        for name, rows in deferred.items():
            self.many(name, rows)

    def record(
        self,
        task_id: str,
        attempt: int,
        signal: Signal | str,
        before: str | None,
        after: State,
        worker: str | None,
        **detail: Any,
    ) -> None:
        """Add an event to a task's audit trail, and announce it."""
        self.defer(
            "insert_event",
            task_id=task_id,
            ts=self.now,
            attempt=attempt,
            signal=signal,
            from_state=before,
            to_state=after,
            worker_id=worker,
            detail_json=json_text.encode(detail) if detail else None,
        )
        self.topics.add(f"task:{task_id}")

    def note(self, task_id: str, signal: str, **detail: Any) -> None:
        """Add an event that changes no state. Ignored for a task that is gone."""
        row = self.one("lock_task", task_id=task_id)
        if row is not None:
            state = State(row["state"])
            self.record(task_id, row["attempt"], signal, state, state, row["worker_id"], **detail)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll the block back, and nothing else, when it raises a BackburnerError."""
        self.flush()
        topics = set(self.topics)
        self._connection.execute("SAVEPOINT part", {})
        try:
            yield
            self.flush()
        except BackburnerError:
            self._connection.execute("ROLLBACK TO part", {})
            self._connection.execute("RELEASE part", {})
            self.topics, self._deferred = topics, {}
            raise
        self._connection.execute("RELEASE part", {})

    def has(self, name: str) -> bool:
        """Return whether this dialect has a statement of that name."""
        return name in self._statements


class SqlBase(ABC):
    """Base of the SQL stores: runs functions over a `Transaction`."""

    clock: Clock

    @abstractmethod
    def _read(self, work: Callable[[Transaction], T], snapshot: bool = False) -> T:
        """Run `work`, which only reads. With `snapshot`, all its statements see the same state."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], durable: bool = True) -> T:
        """Run `work` atomically, in a commit that it may share with other callers.

        Unless it is `durable`, it may reach the disk only with the next durable commit.
        """

    def observe(self, seen: Callable[[str, float], object]) -> None:
        for kind, name in (("read", "_read"), ("write", "_write")):
            setattr(self, name, _timed(getattr(self, name), functools.partial(seen, kind)))


def _timed(call: Callable[..., T], seen: Callable[[float], object]) -> Callable[..., T]:
    def timed(*arguments: Any, **options: Any) -> T:
        began = time.perf_counter()
        try:
            return call(*arguments, **options)
        finally:
            seen(time.perf_counter() - began)

    return timed


# Decorators of a store's methods: each runs in a transaction, which it gets as its first argument.

S = TypeVar("S", bound=SqlBase)
_Work = Callable[Concatenate[S, Transaction, P], T]
_Method = Callable[Concatenate[S, P], T]


def read(work: _Work[S, P, T]) -> _Method[S, P, T]:
    @functools.wraps(work)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._read(lambda tx: work(self, tx, *args, **kwargs))

    return method


def read_snapshot(work: _Work[S, P, T]) -> _Method[S, P, T]:
    """As `read`, with one snapshot for all statements."""

    @functools.wraps(work)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._read(lambda tx: work(self, tx, *args, **kwargs), snapshot=True)

    return method


def write(work: _Work[S, P, T]) -> _Method[S, P, T]:
    """Run in a durable transaction."""

    @functools.wraps(work)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._write(lambda tx: work(self, tx, *args, **kwargs))

    return method


def write_relaxed(work: _Work[S, P, T]) -> _Method[S, P, T]:
    """As `write`, for what may be lost in a power cut."""

    @functools.wraps(work)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._write(lambda tx: work(self, tx, *args, **kwargs), durable=False)

    return method


class Job(Generic[T]):
    """One caller's work in a group commit, and its result."""

    def __init__(self, work: Callable[[Transaction], T], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None


class RolledBack(Exception):
    """A transaction was rolled back because of `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def run_jobs(tx: Transaction, jobs: Sequence[Job[Any]]) -> None:
    """Run each job's work. A job that raises a BackburnerError is rolled back alone.

    Raises RolledBack for any other error: then the transaction must not be committed.
    """
    try:
        if len(jobs) == 1:
            jobs[0].value = jobs[0].work(tx)
            tx.flush()
            return
        for job in jobs:
            try:
                with tx.savepoint():
                    job.value = job.work(tx)
            except BackburnerError as error:
                job.error = error
    except Exception as error:
        raise RolledBack(error) from error


class GroupCommit:
    """Lets concurrent callers share transactions: the first caller runs the work of all that wait.

    It has no thread: the work of a single caller runs in that caller's thread, at no extra cost.
    `run_group` gives each job a value or an error, or raises.
    """

    def __init__(self, run_group: Callable[[list[Job[Any]]], None], largest: int = 256) -> None:
        self._run_group = run_group
        self._largest = largest
        self._waiting: deque[Job[Any]] = deque()
        self._turn = threading.Lock()

    def __call__(self, work: Callable[[Transaction], T], durable: bool = True) -> T:
        job = Job(work, durable)
        self._waiting.append(job)
        while not job.done:
            with self._turn:
                if not job.done:
                    self._lead()
        if job.error is not None:
            raise job.error
        return job.value  # type: ignore[return-value]

    def _lead(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._largest))]
        try:
            self._run(group)
        finally:
            for job in group:
                job.done = True

    def _run(self, jobs: list[Job[Any]]) -> None:
        try:
            self._run_group(jobs)
        except RolledBack as rolled_back:
            if len(jobs) == 1:
                jobs[0].error = rolled_back.error
            else:  # retry each alone, so that only the failing job fails
                for job in jobs:
                    job.error = None
                    self._run([job])
        except BaseException as error:
            for job in jobs:
                job.error = error
            if not isinstance(error, Exception):
                raise
