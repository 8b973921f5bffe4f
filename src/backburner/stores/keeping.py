"""The keeper's sweeps. Functions over a Transaction; each gives the ids of the tasks that it touched."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from ..lifecycle import LEASED, Signal, State, next_state
from ..store import TimedOut
from ..task import TaskError
from . import tasks
from .transaction import Row, Transaction
from .working import end, lost

#: A holder gets this long past the time limit to end its task itself.
TIMEOUT_MARGIN_MS = 60_000


def lose(tx: Transaction, heartbeat_before: int | None, workers: Sequence[str], limit: int) -> list[str]:
    found: list[Row] = []
    if heartbeat_before is not None:
        found += tx.all("stale_attempts", heartbeat_before=heartbeat_before, limit=limit)
    for worker in workers:
        found += tx.all("attempts_of_worker", worker_id=worker)
    touched = []
    for attempt in found:
        row = tx.one("lock_task", task_id=attempt["task_id"])
        if row is not None and row["attempt"] == attempt["attempt"] and row["state"] in LEASED:
            end(tx, dict(row), attempt["task_id"], lost(attempt["worker_id"]))
            touched.append(attempt["task_id"])
    return touched


def time_out(tx: Transaction, limit: int) -> list[str]:
    touched = []
    for overdue in tx.all("overdue", before=tx.now - TIMEOUT_MARGIN_MS, limit=limit):
        row = tx.one("lock_task", task_id=overdue["task_id"])
        if row is not None and next_state(State(row["state"]), Signal.TIME_OUT):
            error = TaskError("timed_out", "The time limit was over and no worker ended the task.")
            end(tx, dict(row), overdue["task_id"], TimedOut(error))
            touched.append(overdue["task_id"])
    return touched


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
