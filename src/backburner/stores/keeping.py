"""The keeper's sweeps. Functions over a Transaction; each gives the ids of the tasks that it touched."""

from __future__ import annotations

from collections.abc import Sequence

from ..housekeeping import HeldLease
from ..lifecycle import LEASED, TERMINAL, Signal, State, next_state
from ..limits import MINUTE_MS, Limits
from ..reports import Outcome, TimedOut
from ..task import TaskError
from . import claims, deliveries, task_logs, tasks
from .limiting import Room, has_left
from .rows import by_name, launch_of
from .transaction import Row, Transaction
from .working import end, lost

#: Clocks of one store differ by less.
_CLOCK_WAS_SET_BACK_MS = 5_000
#: What one transaction packs, and what it deletes: others wait for it.
_LINES_AT_ONCE = 20_000
_BYTES_AT_ONCE = 4 << 20


def lose(tx: Transaction, silent: Sequence[HeldLease], workers: Sequence[str]) -> list[str]:
    touched = []
    for lease in silent:
        heard = tx.one("heartbeat", task_id=lease.task_id, attempt=lease.attempt)
        if heard is not None and heard["heartbeat_at"] == lease.heartbeat_at:
            touched += _end(tx, lease.task_id, lease.attempt, lost(lease.worker_id))
    for worker in workers:
        for held in tx.all("attempts_of_worker", worker_id=worker):
            touched += _end(tx, held["task_id"], held["attempt"], lost(worker))
    return touched


def make_ready(tx: Transaction) -> list[str]:
    """As a claim does it; and here what a clock that was set back would keep waiting is looked for, too."""
    ready = claims.make_ready(tx, tx.one("next_ready_at"))
    stuck = tx.all("make_ready_what_is_of_another_clock", now=tx.now, later=tx.now + _CLOCK_WAS_SET_BACK_MS)
    return [*ready, *claims.in_line(tx, stuck)]


def look_at_limits(tx: Transaction, limits: Limits) -> None:
    """What limits hold that have room, or are no more, is in line; and starts that count no more go."""
    tx.run("forget_starts", before=tx.now - MINUTE_MS)
    if tx.one("held_limits") is not None:
        Room(tx, limits).look_again()


def time_out(tx: Transaction, overdue: Sequence[HeldLease]) -> list[str]:
    error = TaskError("timed_out", "The time limit was over and no worker ended the task.")
    return [
        task_id
        for lease in overdue
        for task_id in _end(tx, lease.task_id, lease.attempt, TimedOut(error), Signal.TIME_OUT)
    ]


def _end(
    tx: Transaction, task_id: str, attempt: int, outcome: Outcome, signal: Signal | None = None
) -> list[str]:
    """End an attempt, unless it is over by now or the signal does not fit; the task's id if it was ended."""
    row = tx.one("lock_task", task_id=task_id)
    if row is None or row["attempt"] != attempt or row["state"] not in LEASED:
        return []
    if signal is not None and next_state(State(row["state"]), signal) is None:
        return []
    end(tx, by_name(row), task_id, outcome)
    tx.flush()
    return [task_id]


def expire(tx: Transaction, limit: int) -> list[str]:
    touched = []
    for task_id in _bite(tx, tx.all("expiring", now=tx.now, limit=limit)):
        row = tx.one("lock_task", task_id=task_id)
        after = next_state(State(row["state"]), Signal.EXPIRE) if row else None
        if row is None or after is None:
            continue
        tasks.drop_outputs(tx, task_id)
        tx.run("expire_task", task_id=task_id, state=after, now=tx.now)
        if row["state"] == State.QUEUED:
            has_left(tx, row)
        if row["state"] not in TERMINAL:  # of another end, those who want to know were told then
            deliveries.tell(tx, row, task_id, after)
        tx.record(task_id, row["attempt"], Signal.EXPIRE, row["state"], after, None)
        touched.append(task_id)
    return touched


def purge(tx: Transaction, before: int, limit: int) -> list[str]:
    expired = tx.all("expired_before", before=before, limit=limit)  # their logs went when they expired
    for row in expired:
        tasks.forget(tx, row)
    return [row["task_id"] for row in expired]


def launches(tx: Transaction) -> set[str]:
    return {launch_of(row["meta_json"]) for row in tx.all("meta_of_unfinished")} - {""}


def _bite(tx: Transaction, found: Sequence[Row]) -> list[str]:
    """The first of the tasks: as many as have logs that one transaction can delete in a moment."""
    bite: list[str] = []
    left = _BYTES_AT_ONCE
    for row in found:
        log = tx.one("log_bytes", task_id=row["task_id"])
        left -= 0 if log is None else int(log["bytes"])
        if bite and left < 0:
            break
        bite.append(row["task_id"])
    return bite


def pack_logs(tx: Transaction, finished_before: int, limit: int) -> list[str]:
    """Some lines at a time, so that other writers need not wait for long; the ids of those that are done."""
    packed, left = [], _LINES_AT_ONCE
    for row in tx.all("with_plain_logs", finished_before=finished_before, limit=limit):
        left -= task_logs.pack(tx, row["task_id"], left)
        if left <= 0:
            break
        tx.run("logs_are_packed", task_id=row["task_id"])
        packed.append(row["task_id"])
    return packed


def forget_runtimes(tx: Transaction, keep: int) -> int:
    names = [row["tool_name"] for row in tx.all("tools_with_runtimes")]
    return sum(len(tx.all("forget_runtimes", tool_name=name, keep=keep)) for name in names)
