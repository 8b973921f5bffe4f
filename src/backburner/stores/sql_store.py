"""The Store verbs over SQL. A subclass says how to read, how to write and how to hear of changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from ..clock import Clock
from ..errors import ArtifactNotFound
from ..housekeeping import HeldLease
from ..lifecycle import State
from ..limits import NO_LIMITS, Limits
from ..reports import Change
from ..store import (
    Lease,
    LeaseView,
    QueueDepth,
    Runtime,
    TaskQuery,
    Turn,
    Wish,
)
from ..submission import Submission
from ..task import (
    Artifact,
    Attempt,
    Event,
    InputRequest,
    LogLine,
    NewTask,
    Task,
    TaskHead,
    Worker,
)
from ..task_ids import ids_that_begin
from ..watch import Watch
from . import (
    claims,
    keeping,
    rows,
    task_logs,
    tasks,
    turns,
    working,
)
from .sql_beside import SqlBeside
from .transaction import Transaction

T = TypeVar("T")


class SqlStore(SqlBeside):
    """Everything about a store but its database. See `backburner.store.Store` for the contracts."""

    url: str
    shared: bool
    clock: Clock

    @abstractmethod
    def watch(self, *, steering: bool = False) -> Watch: ...

    @abstractmethod
    def secret(self) -> bytes: ...

    @abstractmethod
    def version(self) -> int: ...

    @abstractmethod
    def follow_clock(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def now_ms(self) -> int:
        return self.clock.now_ms()

    # -- submitting and reading

    def submit(self, new: NewTask, *, queue_cap: int | None = None) -> Submission:
        return self._write(lambda tx: tasks.submit(tx, new, queue_cap))

    def get(self, task_id: str, owner: str | None = None) -> Task:
        return self._read(lambda tx: tasks.get(tx, task_id, owner))

    def head(self, task_id: str, owner: str | None = None) -> TaskHead:
        return self._read(lambda tx: tasks.head(tx, task_id, owner))

    def heads(self, task_ids: Collection[str]) -> dict[str, TaskHead]:
        return self._read(lambda tx: tasks.heads(tx, task_ids))

    def find(self, external_id: str, owner: str) -> Task | None:
        row = self._read(lambda tx: tx.one("find_external", external_id=external_id, owner=owner))
        return None if row is None else rows.task(row)

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        first, last = ids_that_begin(beginning)
        found = self._all("ids_between", first=first, last=last, owner=owner, limit=limit)
        return [row["task_id"] for row in found]

    def page(self, query: TaskQuery) -> list[Task]:
        return self._read(lambda tx: tasks.find_page(tx, query), snapshot=True)

    def position(self, task: Task, limit: int = 500) -> int | None:
        return self._read(lambda tx: tasks.position(tx, task, limit))

    def logs(self, task_id: str, after: int = 0, limit: int = 200) -> list[LogLine]:
        return self._read(lambda tx: task_logs.read(tx, task_id, after, limit), snapshot=True)

    def last_log_seq(self, task_id: str) -> int:
        return self._read(lambda tx: task_logs.last_seq(tx, task_id))

    def events(self, task_id: str) -> list[Event]:
        return [rows.event(row) for row in self._all("events", task_id=task_id)]

    def attempts(self, task_id: str) -> list[Attempt]:
        return [rows.attempt(row) for row in self._all("attempts", task_id=task_id)]

    def artifacts(self, task_id: str) -> list[Artifact]:
        return [rows.artifact(row) for row in self._all("artifacts", task_id=task_id)]

    def artifact(self, artifact_id: str) -> Artifact:
        row = self._read(lambda tx: tx.one("artifact", artifact_id=artifact_id))
        if row is None:
            raise ArtifactNotFound(artifact_id=artifact_id)
        return rows.artifact(row)

    def input_requests(self, task_id: str) -> list[InputRequest]:
        return [rows.input_request(row) for row in self._all("input_requests", task_id=task_id)]

    def runtimes(self, tool_name: str, limit: int = 100) -> list[Runtime]:
        found = self._all("runtimes", tool_name=tool_name, limit=limit)
        return [Runtime(row["inputs_bytes"], row["seconds"], row["hint_s"]) for row in found]

    def queue_depths(self) -> list[QueueDepth]:
        def read(tx: Transaction) -> list[QueueDepth]:
            leased = {row["queue"]: row["leased"] for row in tx.all("leased_by_queue")}
            queued = {row["queue"]: int(row["queued"]) for row in tx.all("queue_depths")}
            names = sorted({*leased, *queued})
            return [QueueDepth(name, queued.get(name, 0), leased.get(name, 0)) for name in names]

        return self._read(read, snapshot=True)

    def count_states(self, owner: str | None = None) -> dict[State, int]:
        everyones = owner is None
        found = self._all("count_states") if everyones else self._all("count_states_of_owner", owner=owner)
        return {State(row["state"]): row["tasks"] for row in found}

    def count_owners(self) -> dict[str, int]:
        return {row["owner"]: row["tasks"] for row in self._all("count_owners")}

    # -- steering a task

    def cancel(self, task_id: str, owner: str | None = None, reason: str | None = None) -> Task:
        return self._write(lambda tx: tasks.cancel(tx, task_id, owner, reason))

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]], owner: str | None = None) -> Task:
        return self._write(lambda tx: tasks.answer(tx, task_id, answers, owner))

    def tell_model(self, task_id: str, told: bool, owner: str | None = None) -> bool:
        return self._write(lambda tx: tasks.tell_model(tx, task_id, told, owner))

    def retry(self, task_id: str, owner: str | None = None) -> Task:
        return self._write(lambda tx: tasks.retry(tx, task_id, owner))

    def delete(self, task_id: str, owner: str | None = None) -> None:
        self._write(lambda tx: tasks.delete(tx, task_id, owner))

    # -- working on tasks

    def claim(
        self,
        queues: Sequence[str],
        workers: Sequence[str],
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
    ) -> list[Lease]:
        return self._write(lambda tx: claims.claim(tx, queues, workers, fair, limits), durable=False)

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = NO_LIMITS) -> Lease | None:
        return self._write(lambda tx: claims.claim_task(tx, task_id, worker, limits))

    def report(self, lease: Lease, *changes: Change) -> None:
        self._write(lambda tx: working.report(tx, lease, changes))

    def report_all(self, reports: Sequence[tuple[Lease, Sequence[Change]]]) -> list[Lease]:
        return self._write(lambda tx: working.report_all(tx, reports))

    def take_turn(
        self,
        reports: Sequence[tuple[Lease, Sequence[Change]]] = (),
        submissions: Sequence[tuple[NewTask, int | None]] = (),
        wishes: Sequence[Wish] = (),
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
        watch: Watch | None = None,
    ) -> Turn:
        def write(tx: Transaction) -> Turn:
            turn = turns.take(tx, reports, submissions, wishes, fair, limits)
            tx.is_known_to(watch)
            return turn

        return self._write(write, durable=bool(reports or submissions))

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]:
        return self._write(lambda tx: working.heartbeat(tx, leases, workers))

    def remove_workers(self, supervisor_id: str) -> None:
        self._write(lambda tx: tx.run("remove_workers", supervisor_id=supervisor_id))

    def workers(self) -> list[Worker]:
        return [rows.worker(row) for row in self._all("workers")]

    # -- keeping house

    def keep(self, holder: str, lease_s: float) -> bool:
        def write(tx: Transaction) -> bool:
            lease_ms = int(lease_s * 1000)
            times = {"now": tx.now, "expires_at": tx.now + lease_ms, "too_late": tx.now + 2 * lease_ms}
            return tx.one("keep", holder=holder, **times) is not None

        return self._write(write, durable=False)

    def leases(self) -> list[HeldLease]:
        return [HeldLease(**rows.by_name(row)) for row in self._all("leases")]

    def lose(self, *, silent: Sequence[HeldLease] = (), workers: Sequence[str] = ()) -> list[str]:
        return self._write(lambda tx: keeping.lose(tx, silent, workers))

    def make_ready(self) -> list[str]:
        return self._write(keeping.make_ready)

    def look_at_limits(self, limits: Limits) -> None:
        self._write(lambda tx: keeping.look_at_limits(tx, limits), durable=False)

    def ready_in_ms(self) -> int | None:
        return self._read(lambda tx: claims.in_ms(tx, tx.one("next_ready_at")))

    def time_out(self, overdue: Sequence[HeldLease]) -> list[str]:
        return self._write(lambda tx: keeping.time_out(tx, overdue))

    def expire(self, limit: int = 500) -> list[str]:
        return self._write(lambda tx: keeping.expire(tx, limit))

    def purge(self, before: int, limit: int = 500) -> list[str]:
        return self._write(lambda tx: keeping.purge(tx, before, limit))

    def pack_logs(self, finished_before: int, limit: int = 100) -> list[str]:
        return self._write(lambda tx: keeping.pack_logs(tx, finished_before, limit))

    def launches(self) -> set[str]:
        return self._read(keeping.launches)

    def forget_runtimes(self, keep: int = 500) -> int:
        return self._write(lambda tx: keeping.forget_runtimes(tx, keep))

    # -- the store itself

    def wait_for_writers(self, seconds: float) -> None: ...

    def spend(self, name: str, for_s: float) -> bool:
        def write(tx: Transaction) -> bool:
            tx.run("forget_spent", now=tx.now)
            return tx.one("spend", name=name, until=tx.now + int(for_s * 1000)) is not None

        return self._write(write)

    def is_spent(self, name: str) -> bool:
        return self._read(lambda tx: tx.one("is_spent", name=name) is not None)

    def check_writable(self) -> None:
        self._write(lambda tx: tx.run("rewrite_secret"), durable=False)
