"""The keeper's lease and sweeps: lost workers, due retries, timeouts, expiry, log compression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..core.lifecycle import LEASED, TERMINAL, Signal, State, next_state
from ..core.limits import MINUTE_MS, Limits
from ..core.reports import Failed, Outcome, TimedOut
from ..core.task import TaskError
from . import attempts, leases, outputs, tasks, webhooks
from .limits import Room, release_next
from .sql import rows
from .sql.transaction import Row, SqlBase, Transaction, read, write, write_relaxed

#: A larger difference between the clocks of one store means that a clock was set back.
_CLOCK_SKEW_MS = 5_000
#: The most that one transaction packs and deletes, since other writers wait for it.
_LINES_AT_ONCE = 20_000
_BYTES_AT_ONCE = 4 << 20


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as the keeper sees it. `limit_ms` is the time limit of the attempt; None before it starts."""

    task_id: str
    attempt: int
    worker_id: str | None
    heartbeat_at: int
    limit_ms: int | None


class KeeperStore(Protocol):
    """Sweeps. Those that return a list return the ids of the tasks that they changed."""

    def keep(self, holder: str, lease_s: float) -> bool:
        """Acquire or renew the keeper's lease. Return False if another process has it."""
        ...

    def leases(self) -> list[HeldLease]: ...

    def lose(self, *, silent: Sequence[HeldLease] = (), workers: Sequence[str] = ()) -> list[str]:
        """End the attempts of lost workers. A `silent` lease with a newer heartbeat is left alone."""
        ...

    def make_ready(self) -> list[str]:
        """Queue due retries."""
        ...

    def look_at_limits(self, limits: Limits) -> None:
        """Release tasks whose limits were raised or removed."""
        ...

    def ready_in_ms(self) -> int | None:
        """Return the time until the next retry is due."""
        ...

    def time_out(self, overdue: Sequence[HeldLease]) -> list[str]:
        """End these attempts as timed out, unless they are over."""
        ...

    def expire(self, limit: int = 500) -> list[str]:
        """Expire tasks past their time to live; their inputs, results, logs and artifact records go."""
        ...

    def purge(self, before: int, limit: int = 500) -> list[str]:
        """Delete tasks that expired before then."""
        ...

    def pack_logs(self, finished_before: int, limit: int = 100) -> list[str]:
        """Compress the logs of tasks that finished before then, a part at a time."""
        ...

    def launches(self) -> set[str]:
        """Return the launches of unfinished tasks."""
        ...

    def follow_clock(self) -> None:
        """Move due times when the host's wall clock was set, if the store uses that clock."""
        ...

    def forget_runtimes(self, keep: int = 500) -> int:
        """Delete all but the latest runtimes of each tool."""
        ...


class SqlKeeper(SqlBase):
    @write_relaxed
    def keep(self, tx: Transaction, holder: str, lease_s: float) -> bool:
        lease_ms = int(lease_s * 1000)
        times = {"now": tx.now, "expires_at": tx.now + lease_ms, "too_late": tx.now + 2 * lease_ms}
        return tx.one("renew_keeper", holder=holder, **times) is not None

    @read
    def leases(self, tx: Transaction) -> list[HeldLease]:
        return [rows.record(HeldLease, row) for row in tx.all("held_leases")]

    @write
    def lose(
        self, tx: Transaction, *, silent: Sequence[HeldLease] = (), workers: Sequence[str] = ()
    ) -> list[str]:
        ended = []
        for lease in silent:
            latest = tx.one("heartbeat", task_id=lease.task_id, attempt=lease.attempt)
            if latest is not None and latest["heartbeat_at"] == lease.heartbeat_at:
                ended += _end(tx, lease.task_id, lease.attempt, _lost(lease.worker_id))
        for worker in workers:
            for held in tx.all("attempts_of_worker", worker_id=worker):
                ended += _end(tx, held["task_id"], held["attempt"], _lost(worker))
        return ended

    @write
    def make_ready(self, tx: Transaction) -> list[str]:
        ready = leases.make_ready(tx, tx.one("next_ready_at"))
        stuck = tx.all("make_ready_after_clock_change", now=tx.now, later=tx.now + _CLOCK_SKEW_MS)
        return [*ready, *leases.announce_ready(tx, stuck)]

    @write_relaxed
    def look_at_limits(self, tx: Transaction, limits: Limits) -> None:
        tx.run("delete_old_starts", before=tx.now - MINUTE_MS)
        if tx.one("held_limits") is not None:
            Room(tx, limits).release_all()

    @read
    def ready_in_ms(self, tx: Transaction) -> int | None:
        return leases.ready_in_ms(tx, tx.one("next_ready_at"))

    @write
    def time_out(self, tx: Transaction, overdue: Sequence[HeldLease]) -> list[str]:
        error = TaskError("timed_out", "The time limit was over and no worker ended the task.")
        return [
            task_id
            for lease in overdue
            for task_id in _end(tx, lease.task_id, lease.attempt, TimedOut(error), Signal.TIME_OUT)
        ]

    @write
    def expire(self, tx: Transaction, limit: int = 500) -> list[str]:
        expired = []
        for task_id in _few_log_bytes(tx, tx.all("expiring", now=tx.now, limit=limit)):
            row = tx.one("lock_task", task_id=task_id)
            after = next_state(State(row["state"]), Signal.EXPIRE) if row else None
            if row is None or after is None:
                continue
            tasks.delete_outputs(tx, task_id)
            tx.run("expire_task", task_id=task_id, state=after, now=tx.now)
            if row["state"] == State.QUEUED:
                release_next(tx, row)
            if row["state"] not in TERMINAL:  # a finished task has sent its webhooks
                webhooks.enqueue(tx, row, task_id, after)
            tx.record(task_id, row["attempt"], Signal.EXPIRE, row["state"], after, None)
            expired.append(task_id)
        return expired

    @write
    def purge(self, tx: Transaction, before: int, limit: int = 500) -> list[str]:
        expired = tx.all("expired_before", before=before, limit=limit)
        for row in expired:
            tasks.delete_task(tx, row)
        return [row["task_id"] for row in expired]

    @write
    def pack_logs(self, tx: Transaction, finished_before: int, limit: int = 100) -> list[str]:
        packed, left = [], _LINES_AT_ONCE
        for row in tx.all("tasks_with_plain_logs", finished_before=finished_before, limit=limit):
            left -= outputs.pack(tx, row["task_id"], left)
            if left <= 0:
                break
            tx.run("mark_logs_packed", task_id=row["task_id"])
            packed.append(row["task_id"])
        return packed

    @read
    def launches(self, tx: Transaction) -> set[str]:
        found = tx.all("extra_of_unfinished")
        return {rows.extra_of(row["extra_json"]).get("launch", "") for row in found} - {""}

    @write
    def forget_runtimes(self, tx: Transaction, keep: int = 500) -> int:
        names = [row["tool_name"] for row in tx.all("tools_with_runtimes")]
        return sum(len(tx.all("delete_old_runtimes", tool_name=name, keep=keep)) for name in names)


def _lost(worker_id: str | None) -> Failed:
    return Failed(TaskError("worker_lost", f"The worker {worker_id} went away while it ran the task."))


def _end(
    tx: Transaction, task_id: str, attempt: int, outcome: Outcome, signal: Signal | None = None
) -> list[str]:
    """End an attempt unless it is over or the signal is refused. Return the id of the ended task."""
    row = tx.one("lock_task", task_id=task_id)
    if row is None or row["attempt"] != attempt or row["state"] not in LEASED:
        return []
    if signal is not None and next_state(State(row["state"]), signal) is None:
        return []
    attempts.end(tx, rows.by_name(row), task_id, outcome)
    tx.flush()
    return [task_id]


def _few_log_bytes(tx: Transaction, found: Sequence[Row]) -> list[str]:
    """Return the first tasks: as many as have logs that one transaction can delete quickly."""
    chosen: list[str] = []
    left = _BYTES_AT_ONCE
    for row in found:
        log = tx.one("log_bytes", task_id=row["task_id"])
        left -= 0 if log is None else int(log["bytes"])
        if chosen and left < 0:
            break
        chosen.append(row["task_id"])
    return chosen
