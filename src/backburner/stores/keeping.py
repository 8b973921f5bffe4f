"""The keeper's sweeps. Functions over a Transaction; each gives the ids of the tasks that it touched."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from ..lifecycle import LEASED, Signal, State, next_state
from ..reports import Outcome, TimedOut
from ..store import HeldLease
from ..task import TaskError
from . import tasks, working
from .rows import by_name, launch_of
from .transaction import Transaction
from .working import end, lost

#: Clocks of one store differ by less.
_CLOCK_WAS_SET_BACK_MS = 5_000


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
    ready = working.make_ready(tx)
    stuck = tx.all("make_ready_what_is_of_another_clock", now=tx.now, later=tx.now + _CLOCK_WAS_SET_BACK_MS)
    tx.topics.update(f"queue:{row['queue']}" for row in stuck)
    return [*ready, *(row["task_id"] for row in stuck)]


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
    return [task_id]


def expire(tx: Transaction, limit: int) -> list[str]:
    touched = []
    for expiring in tx.all("expiring", now=tx.now, limit=limit):
        task_id = expiring["task_id"]
        row = tx.one("lock_task", task_id=task_id)
        after = next_state(State(row["state"]), Signal.EXPIRE) if row else None
        if row is None or after is None:
            continue
        tasks.drop_outputs(tx, task_id)
        tx.run("expire_task", task_id=task_id, state=after, now=tx.now)
        tx.record(task_id, row["attempt"], Signal.EXPIRE, row["state"], after, None)
        touched.append(task_id)
    return touched


def purge(tx: Transaction, before: int, limit: int) -> list[str]:
    expired = tx.all("expired_before", before=before, limit=limit)
    for row in expired:
        tasks.forget(tx, row["task_id"], row["seq"])
    return [row["task_id"] for row in expired]


def launches(tx: Transaction) -> set[str]:
    return {launch_of(row["meta_json"]) for row in tx.all("meta_of_unfinished")} - {""}


def pack_logs(tx: Transaction, finished_before: int, limit: int) -> list[str]:
    found = tx.all("with_plain_logs", finished_before=finished_before, limit=limit)
    for row in found:
        _pack(tx, row["task_id"])
    return [row["task_id"] for row in found]


def _pack(tx: Transaction, task_id: str) -> None:
    lines = tx.all("plain_logs", task_id=task_id, after=0, limit=2**31)
    if lines:
        texts = (
            json.dumps([line["seq"], line["ts"], line["stream"], line["level"], line["line"]])
            for line in lines
        )
        data = zlib.compress("\n".join(texts).encode())
        first, last = lines[0]["seq"], lines[-1]["seq"]
        tx.run("insert_log_chunk", task_id=task_id, first_seq=first, last_seq=last, data=data)
        tx.run("delete_logs", task_id=task_id)
    tx.run("logs_are_packed", task_id=task_id)


def forget_runtimes(tx: Transaction, keep: int) -> int:
    names = [row["tool_name"] for row in tx.all("tools_with_runtimes")]
    return sum(len(tx.all("forget_runtimes", tool_name=name, keep=keep)) for name in names)
