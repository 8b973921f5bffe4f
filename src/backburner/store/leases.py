"""Leases: claims of tasks, reports of workers, heartbeats, and the batch that combines them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..core.lifecycle import LEASED, Signal, State, next_state
from ..core.limits import NO_LIMITS, Limits
from ..core.reports import Change
from ..core.task import NewTask, Submission, Task, Worker
from ..errors import BackburnerError, LeaseLost
from . import attempts, tasks
from .limits import Room, choose
from .sql import rows
from .sql.transaction import Result, Row, SqlBase, Transaction, read, write, write_relaxed

if TYPE_CHECKING:
    from .watch import Watch

#: How often a claim looks for more tasks in place of those that limits hold, and for how many at least.
_LOOKS, _LEAST_LOOKED_AT = 4, 32


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's exclusive hold on one attempt, fenced by the attempt number."""

    task: Task
    worker_id: str
    checkpoint: Any = None
    last_log_seq: int = 0

    @property
    def task_id(self) -> str:
        return self.task.task_id

    @property
    def attempt(self) -> int:
        return self.task.attempt


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request of one task for each worker of a queue, or of one named task.

    In a batch, either all requests name their task and nothing is submitted, or none does.
    """

    queue: str
    workers: Sequence[str]
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Result of `commit_batch`.

    `lost` are the leases of refused reports, `submitted` the result of each submission (None if refused), and
    `leases` those of each claim request. A queue in `topics` may have more tasks. The next task becomes ready
    by itself in `ready_in_ms`.
    """

    lost: Sequence[Lease]
    submitted: Sequence[Submission | None]
    leases: Sequence[Sequence[Lease]]
    topics: Collection[str] = ()
    ready_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseView:
    """State of a lease for its holder: whether it is still `held`, and the task's state."""

    held: bool
    state: State


Reports = Sequence[tuple[Lease, Sequence[Change]]]


class LeaseStore(Protocol):
    def claim(
        self,
        queues: Sequence[str],
        workers: Sequence[str],
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
    ) -> list[Lease]:
        """Claim the best ready tasks, one per worker: by priority, then fair share if on, then FIFO.

        Each task is claimed once. Limits, the operator's `limits` and those of tools, hold tasks until there
        is room. On SQLite, a power cut before the next durable write undoes the claim (docs/decisions/0004).
        """
        ...

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = NO_LIMITS) -> Lease | None:
        """Claim this task; None if it is not ready or a limit holds it. `limits=None` ignores limits."""
        ...

    def report(self, lease: Lease, *changes: Change) -> None:
        """Write the changes of an attempt, in order. Raises LeaseLost if it is not the current one."""
        ...

    def report_all(self, reports: Reports) -> list[Lease]:
        """Write many reports in one commit. Return the lost leases, whose reports changed nothing."""
        ...

    def commit_batch(
        self,
        reports: Reports = (),
        submissions: Sequence[tuple[NewTask, int | None]] = (),
        wishes: Sequence[ClaimRequest] = (),
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
        watch: Watch | None = None,
    ) -> BatchResult:
        """Do `report_all`, `submit` for each task with its `queue_cap`, and `claim`, in one commit.

        A wish that names its task is a `claim_task`. `watch`, of the same store, does not hear of the batch.
        """
        ...

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]:
        """Renew leases and write the state of workers."""
        ...

    def remove_workers(self, supervisor_id: str) -> None: ...

    def workers(self) -> list[Worker]: ...


class SqlLeases(SqlBase):
    @write_relaxed
    def claim(
        self,
        tx: Transaction,
        queues: Sequence[str],
        workers: Sequence[str],
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
    ) -> list[Lease]:
        due = tx.send("next_ready_at")
        ready = _send_ready(tx, queues, len(workers), fair)
        if make_ready(tx, due.fetchone()):
            ready = _send_ready(tx, queues, len(workers), fair)
        return _claim(tx, ready, queues, workers, fair, limits)

    @write
    def claim_task(
        self, tx: Transaction, task_id: str, worker: str, limits: Limits | None = NO_LIMITS
    ) -> Lease | None:
        make_ready(tx, tx.one("next_ready_at"))
        leases = _claim_row(tx, tx.one("ready_task", task_id=task_id), worker, limits)
        return leases[0] if leases else None

    @write
    def report(self, tx: Transaction, lease: Lease, *changes: Change) -> None:
        if attempts.report_all(tx, [(lease, changes)]):
            raise LeaseLost(task_id=lease.task_id, attempt=lease.attempt)

    @write
    def report_all(self, tx: Transaction, reports: Reports) -> list[Lease]:
        return attempts.report_all(tx, reports)

    def commit_batch(
        self,
        reports: Reports = (),
        submissions: tasks.Submissions = (),
        wishes: Sequence[ClaimRequest] = (),
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
        watch: Watch | None = None,
    ) -> BatchResult:
        def run(tx: Transaction) -> BatchResult:
            if any(wish.task_id is not None for wish in wishes):
                assert not submissions, "a batch that names its tasks submits none"
                result = _run_named_batch(tx, reports, wishes, limits)
            else:
                result = _run_batch(tx, reports, submissions, wishes, fair, limits)
            tx.mark_known(watch)
            return result

        return self._write(run, durable=bool(reports or submissions))

    @write
    def heartbeat(
        self, tx: Transaction, leases: Sequence[Lease], workers: Sequence[Worker]
    ) -> list[LeaseView]:
        views = []
        for lease in leases:
            row = tx.one("task_head", task_id=lease.task_id)
            held = row is not None and row["attempt"] == lease.attempt and row["state"] in LEASED
            if held:
                tx.run("renew_heartbeat", task_id=lease.task_id, attempt=lease.attempt, now=tx.now)
            views.append(LeaseView(held, State(row["state"]) if row else State.EXPIRED))
        tx.many("write_worker", [{**rows.values_of(worker), "last_heartbeat": tx.now} for worker in workers])
        return views

    @write
    def remove_workers(self, tx: Transaction, supervisor_id: str) -> None:
        tx.run("remove_workers", supervisor_id=supervisor_id)

    @read
    def workers(self, tx: Transaction) -> list[Worker]:
        return [rows.record(Worker, row) for row in tx.all("workers")]


# -- claims --------------------------------------------------------------------------------------

_Ready = list[Result] | None


def _send_ready(tx: Transaction, queues: Sequence[str], n: int, fair: bool) -> _Ready:
    """Start to look for ready tasks in each queue. Fair claims look later, share by share."""
    return None if fair else [tx.send("ready_tasks", queue=queue, limit=n) for queue in queues]


def _claim(
    tx: Transaction, ready: _Ready, queues: Sequence[str], workers: Sequence[str], fair: bool, limits: Limits
) -> list[Lease]:
    """Lease the best of the ready tasks. If limits hold some, look for others."""
    leases: list[Lease] = []
    room: Room | None = None
    n = len(workers)
    for _ in range(_LOOKS):
        found = _fetch_ready(tx, ready, queues, n)
        best = list(heapq.merge(*found, key=_by_priority if fair else _by_priority_and_age))
        held = seen = 0
        for row in best:
            if len(leases) == len(workers):
                break
            seen += 1
            if room is None and (limits or row["tool_said"] is not None):
                room = Room(tx, limits)
            if room is None or room.admit(row):
                leases.append(_lease(tx, row, workers[len(leases)]))
            else:
                held += 1
        tx.flush()
        if not held or len(leases) == len(workers):
            break
        n = max(_LEAST_LOOKED_AT, len(workers) - len(leases))
        ready = _send_ready(tx, queues, n, fair)
    if room is not None:
        room.release_held()
    if (held and len(leases) < len(workers)) or (tx.has("lock_counts") and seen < len(best)):
        # There may be more behind the held tasks, and other claims skipped the rows that are locked here.
        tx.topics.update(f"queue:{queue}" for queue in queues)
    return leases


def _fetch_ready(tx: Transaction, ready: _Ready, queues: Sequence[str], n: int) -> list[list[Row]]:
    if ready is not None:
        return [result.fetchall() for result in ready]
    if tx.has("lock_counts"):
        tx.run("lock_counts")
    return [choose(tx, "ready", queue, n) for queue in queues]


def _by_priority(row: Row) -> int:
    return -int(row["priority"])


def _by_priority_and_age(row: Row) -> tuple[int, int]:
    return -row["priority"], row["seq"]


def _claim_row(tx: Transaction, row: Row | None, worker: str, limits: Limits | None) -> list[Lease]:
    """Lease the task of a `ready_task` row if its limits allow it."""
    if row is None:
        return []
    room = Room(tx, limits) if limits is not None and (limits or row["tool_said"] is not None) else None
    leases = [_lease(tx, row, worker)] if room is None or room.admit(row) else []
    if room is not None:
        room.release_held()
    return leases


def _lease(tx: Transaction, row: Row, worker: str) -> Lease:
    state = next_state(State(row["state"]), Signal.CLAIM)
    assert state is not None, "only queued tasks are in the ready index"
    attempt = row["attempt"] + 1
    task_id = row["task_id"]
    tx.defer("lease_task", seq=row["seq"], state=state, attempt=attempt, worker_id=worker, now=tx.now)
    tx.defer("insert_attempt", task_id=task_id, attempt=attempt, worker_id=worker, now=tx.now)
    tx.record(task_id, attempt, Signal.CLAIM, row["state"], state, worker)
    leased = {"state": state, "attempt": attempt, "worker_id": worker, "heartbeat_at": tx.now}
    task = rows.task(
        {**rows.by_name(row), **leased, "changed_at": tx.now, "ready_at": None, "error_json": None}
    )
    if attempt == 1:
        return Lease(task, worker)
    checkpoint = tx.one("checkpoint", task_id=task_id)
    last = tx.one("last_log_seq", task_id=task_id)
    return Lease(
        task,
        worker,
        checkpoint=rows.decode(checkpoint["data_json"]) if checkpoint else None,
        last_log_seq=last["seq"] if last else 0,
    )


def make_ready(tx: Transaction, due: Row | None) -> list[str]:
    """Make tasks ready whose time has come; `due` is the row of `next_ready_at`."""
    if due is None or due["ready_at"] is None or due["ready_at"] > tx.now:
        return []
    return announce_ready(tx, tx.all("make_ready", now=tx.now))


def announce_ready(tx: Transaction, ready: Sequence[Row]) -> list[str]:
    """Announce tasks that have become ready. Return their ids."""
    tx.topics.update(f"queue:{row['queue']}" for row in ready)
    tx.many("clear_hold", [{"seq": row["seq"]} for row in ready if row["tool_said"] is not None])
    return [row["task_id"] for row in ready]


def ready_in_ms(tx: Transaction, due: Row | None) -> int | None:
    """Return the time until a task becomes ready by itself; `due` is the row of `next_ready_at`."""
    times = [at for at in (None if due is None else due["ready_at"], tx.due_at) if at is not None]
    return max(0, min(times) - tx.now) if times else None


# -- batches -------------------------------------------------------------------------------------

_Started = tasks.Insert | Submission | BackburnerError


def _run_batch(
    tx: Transaction,
    reports: Reports,
    submissions: tasks.Submissions,
    wishes: Sequence[ClaimRequest],
    fair: bool,
    limits: Limits,
) -> BatchResult:
    """Report, submit and claim in few round trips.

    A new task whose queue is empty is inserted as leased, not queued first. If the queue is paused or limits
    may hold one of its tasks, all are queued and claimed.
    """
    locked, lengths = attempts.send_locks(tx, reports), tasks.send_lengths(tx, submissions)
    paused = tx.send("paused_queues") if submissions and wishes else None
    waiting = tasks.count_waiting(lengths)
    # Fair claims count attempts that end now as running: otherwise a single worker would never change owners.
    lost = [] if fair else attempts.report_all(tx, reports, locked)
    counted = {new.queue for new, _ in submissions if limits or new.limits is not None}
    if paused is not None:
        counted |= {row["queue"] for row in paused.fetchall()}
    free = {
        wish.queue: deque(wish.workers)
        for wish in wishes
        if wish.queue in waiting.keys() - counted
        and not fair
        and not waiting[wish.queue].total()
        and f"queue:{wish.queue}" not in tx.topics
    }
    started: dict[int, _Started] = {}
    for at in sorted(range(len(submissions)), key=lambda at: -submissions[at][0].priority):
        new, cap = submissions[at]
        names = free.get(new.queue)
        started[at] = one = tasks.send_insert(tx, new, cap, waiting[new.queue], names[0] if names else None)
        if names and isinstance(one, tasks.Insert):
            names.popleft()
    due = tx.send("next_ready_at")
    others = {wish.queue: wish.workers for wish in wishes if wish.queue not in free}
    ready = {queue: _send_ready(tx, [queue], len(workers), fair) for queue, workers in others.items()}
    leases: dict[str, list[Lease]] = {queue: [] for queue in free}
    submitted = [_finish_insert(tx, started[at], leases) for at in range(len(submissions))]
    next_due = due.fetchone()
    if made_ready := make_ready(tx, next_due):
        next_due = tx.one("next_ready_at")
    if made_ready or counted:
        tx.flush()  # the limits of new tasks
        ready = {queue: _send_ready(tx, [queue], len(workers), fair) for queue, workers in others.items()}
    for queue, workers in others.items():
        leases[queue] = _claim(tx, ready[queue], [queue], workers, fair, limits)
    if fair:
        lost = attempts.report_all(tx, reports, locked)
    tx.flush()
    accepted = [None if isinstance(one, BackburnerError) else one for one in submitted]
    granted = [leases[wish.queue] for wish in wishes]
    return BatchResult(lost, accepted, granted, frozenset(tx.topics), ready_in_ms(tx, next_due))


def _run_named_batch(
    tx: Transaction, reports: Reports, wishes: Sequence[ClaimRequest], limits: Limits
) -> BatchResult:
    locked, due = attempts.send_locks(tx, reports), tx.send("next_ready_at")
    ready = [tx.send("ready_task", task_id=wish.task_id) for wish in wishes]
    lost = attempts.report_all(tx, reports, locked)
    if make_ready(tx, due.fetchone()):
        ready = [tx.send("ready_task", task_id=wish.task_id) for wish in wishes]
    leases = [
        _claim_row(tx, found.fetchone(), wish.workers[0], limits)
        for wish, found in zip(wishes, ready, strict=True)
    ]
    tx.flush()
    return BatchResult(lost, [], leases, frozenset(tx.topics))


def _finish_insert(
    tx: Transaction, started: _Started, leases: dict[str, list[Lease]]
) -> Submission | BackburnerError:
    """Complete a submission. If it was inserted as leased, add its lease to those of its queue."""
    if not isinstance(started, tasks.Insert):
        return started
    if started.worker is None:
        return tasks.finish_insert(tx, started) or tasks.existing(tx, started.new)
    state = next_state(State.QUEUED, Signal.CLAIM)
    assert state is not None, "a queued task can be claimed"
    worker, now, new = started.worker, tx.now, started.new
    leased = {"state": state, "attempt": 1, "worker_id": worker, "heartbeat_at": now, "updated_at": now}
    submission = tasks.finish_insert(tx, started, leased)
    if submission is None:
        return tasks.existing(tx, new)
    tx.defer("insert_attempt", task_id=new.task_id, attempt=1, worker_id=worker, now=now)
    tx.record(new.task_id, 1, Signal.CLAIM, State.QUEUED, state, worker)
    leases[new.queue].append(Lease(submission.task, worker))
    return submission
