"""A transaction on either database, and the group commit that lets concurrent writers share one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from .. import json_text
from ..errors import BackburnerError
from ..lifecycle import Signal, State
from ..watch import Watch

T = TypeVar("T")

#: What a driver raises, beside its own errors, for a value that no column can hold.
UNFIT = (OverflowError, UnicodeError, TypeError)
Row = Mapping[str, Any]


class Connection(Protocol):
    """What both drivers' connections have in common."""

    def execute(self, sql: str, parameters: Mapping[str, Any], /) -> Any: ...

    def executemany(self, sql: str, rows: Iterable[Mapping[str, Any]], /) -> Any: ...


class Answer(Protocol):
    """What a statement gave back, once it is read."""

    def fetchall(self) -> list[Row]: ...

    def fetchone(self) -> Row | None: ...


class Transaction:
    """Named statements on one connection, at one moment, with the topics to announce at the commit."""

    def __init__(self, connection: Any, statements: Mapping[str, str], now: int) -> None:
        self._connection: Connection = connection
        self._statements = statements
        self.now = now
        self.topics: set[str] = set()
        #: When the first of those that were put off here falls due, as far as it is known.
        self.due_at: int | None = None
        self.known: tuple[Watch, frozenset[str]] | None = None
        self._put_off: dict[str, list[Mapping[str, Any]]] = {}

    def ask(self, name: str, /, **parameters: Any) -> Answer:
        """Begin a statement whose answer is read later: those that are begun together share a round trip."""
        answer: Answer = self._connection.execute(self._statements[name], parameters)
        return answer

    def is_known_to(self, watch: Watch | None) -> None:
        """Who hears by this watch knows of all that is written so far."""
        if watch is not None:
            self.known = watch, frozenset(self.topics)

    def falls_due(self, at: int) -> None:
        """A task is put off until then."""
        self.due_at = at if self.due_at is None else min(self.due_at, at)

    def all(self, name: str, /, **parameters: Any) -> list[Row]:
        return self.ask(name, **parameters).fetchall()

    def one(self, name: str, /, **parameters: Any) -> Row | None:
        return self.ask(name, **parameters).fetchone()

    def run(self, name: str, /, **parameters: Any) -> None:
        self._connection.execute(self._statements[name], parameters)

    def many(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self._connection.executemany(self._statements[name], rows)

    def later(self, name: str, /, **parameters: Any) -> None:
        """Put a write off until `flush`, where all of its kind are done together.

        It is for what depends on no other write that is put off, and what nobody reads before.
        """
        self._put_off.setdefault(name, []).append(parameters)

    def flush(self) -> None:
        put_off, self._put_off = self._put_off, {}
        for name, rows in put_off.items():
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
        """Write one line of a task's audit trail, and announce it."""
        self.later(
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
        """Write a line of a task's audit trail that moves nothing. A task that is gone is passed over."""
        row = self.one("lock_task", task_id=task_id)
        if row is not None:
            state = State(row["state"])
            self.record(task_id, row["attempt"], signal, state, state, row["worker_id"], **detail)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What is done inside happens whole, or, when it is refused, not at all."""
        self.flush()
        topics = set(self.topics)
        self._connection.execute("SAVEPOINT part", {})
        try:
            yield
            self.flush()
        except BackburnerError:
            self._connection.execute("ROLLBACK TO part", {})
            self._connection.execute("RELEASE part", {})
            self.topics, self._put_off = topics, {}
            raise
        self._connection.execute("RELEASE part", {})

    def has(self, name: str) -> bool:
        """Whether this dialect has a statement of that name."""
        return name in self._statements


class Job(Generic[T]):
    """One caller's work in a group commit, and what became of it."""

    def __init__(self, work: Callable[[Transaction], T], durable: bool) -> None:
        self.work = work
        self.durable = durable
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None


class Undone(Exception):
    """A transaction ended before its commit because of `error`; nothing of it is there."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def run_jobs(tx: Transaction, jobs: Sequence[Job[Any]]) -> None:
    """Do each job's work. One of many that is refused is undone by itself and does not disturb the others.

    Raises Undone for any other error: then the transaction must not be committed.
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
        raise Undone(error) from error


class GroupCommit:
    """Lets concurrent callers share transactions: whoever comes first does the work of all who wait.

    There is no thread for it: with one caller, the work runs in that caller's own thread, and
    nothing is added to its cost. `run_group` leaves each job with a value or an error, or raises.
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
        except Undone as undone:
            if len(jobs) == 1:
                jobs[0].error = undone.error
            else:  # one of them may be to blame, so each has a transaction of its own
                for job in jobs:
                    job.error = None
                    self._run([job])
        except BaseException as error:
            for job in jobs:
                job.error = error
            if not isinstance(error, Exception):
                raise
