"""Claiming tasks for workers. Functions over a Transaction."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ..lifecycle import Signal, State, next_state
from ..limits import Limits
from ..store import Lease
from . import rows
from .limiting import Room
from .sharing import choose
from .transaction import Answer, Row, Transaction

#: So often a claim looks for others in the place of what limits hold, and at so many at least.
_LOOKS, _LEAST_LOOKED_AT = 4, 32


def claim(
    tx: Transaction, queues: Sequence[str], workers: Sequence[str], fair: bool, limits: Limits
) -> list[Lease]:
    due = tx.ask("next_ready_at")
    found = look(tx, queues, len(workers), fair)
    made_ready = make_ready(tx, due.fetchone())
    looked = look(tx, queues, len(workers), fair) if made_ready else found
    return take(tx, looked, queues, workers, fair, limits)


Look = list[Answer] | None


def look(tx: Transaction, queues: Sequence[str], n: int, fair: bool) -> Look:
    """Begin to look for so many ready tasks in each queue. Shares are looked at when they are taken from."""
    return None if fair else [tx.ask("ready_tasks", queue=queue, limit=n) for queue in queues]


def take(
    tx: Transaction, looked: Look, queues: Sequence[str], workers: Sequence[str], fair: bool, limits: Limits
) -> list[Lease]:
    """Lease the best of what is found that may start. Where limits hold some, others are looked for."""
    leases: list[Lease] = []
    room: Room | None = None
    n = len(workers)
    for _ in range(_LOOKS):
        found = _found(tx, looked, queues, n)
        best = list(heapq.merge(*found, key=_by_priority if fair else _by_priority_and_age))
        held = seen = 0
        for row in best:
            if len(leases) == len(workers):
                break
            seen += 1
            if room is None and (limits or row["tool_said"] is not None):
                room = Room(tx, limits)
            if room is None or room.lets_start(row):
                leases.append(_lease(tx, row, workers[len(leases)]))
            else:
                held += 1
        tx.flush()
        if not held or len(leases) == len(workers):
            break
        n = max(_LEAST_LOOKED_AT, len(workers) - len(leases))
        looked = look(tx, queues, n, fair)
    if room is not None:
        room.pass_on()
    if (held and len(leases) < len(workers)) or (tx.has("lock_counted") and seen < len(best)):
        # There may be more behind what is held; and others have passed over the rows that are locked here.
        tx.topics.update(f"queue:{queue}" for queue in queues)
    return leases


def _found(tx: Transaction, looked: Look, queues: Sequence[str], n: int) -> list[list[Row]]:
    if looked is not None:
        return [one.fetchall() for one in looked]
    if tx.has("lock_counted"):
        tx.run("lock_counted")
    return [choose(tx, "ready", queue, n) for queue in queues]


def _by_priority(row: Row) -> int:
    return -int(row["priority"])


def _by_priority_and_age(row: Row) -> tuple[int, int]:
    return -row["priority"], row["seq"]


def claim_task(tx: Transaction, task_id: str, worker: str, limits: Limits | None) -> Lease | None:
    make_ready(tx, tx.one("next_ready_at"))
    leases = take_named(tx, tx.one("ready_task", task_id=task_id), worker, limits)
    return leases[0] if leases else None


def take_named(tx: Transaction, row: Row | None, worker: str, limits: Limits | None) -> list[Lease]:
    """Lease a task, of ready_task, that may start; else none."""
    if row is None:
        return []
    room = Room(tx, limits) if limits is not None and (limits or row["tool_said"] is not None) else None
    leases = [_lease(tx, row, worker)] if room is None or room.lets_start(row) else []
    if room is not None:
        room.pass_on()
    return leases


def make_ready(tx: Transaction, due: Row | None) -> list[str]:
    """Put due retries in line. `due` is of next_ready_at."""
    if due is None or due["ready_at"] is None or due["ready_at"] > tx.now:
        return []
    return in_line(tx, tx.all("make_ready", now=tx.now))


def in_line(tx: Transaction, ready: Sequence[Row]) -> list[str]:
    """Tasks have become ready: announce them. The ids."""
    tx.topics.update(f"queue:{row['queue']}" for row in ready)
    tx.many("hold_no_more", [{"seq": row["seq"]} for row in ready if row["tool_said"] is not None])
    return [row["task_id"] for row in ready]


def in_ms(tx: Transaction, due: Row | None) -> int | None:
    """How long it is until a task becomes ready by itself, of `next_ready_at`; None when none does."""
    times = [at for at in (None if due is None else due["ready_at"], tx.due_at) if at is not None]
    return max(0, min(times) - tx.now) if times else None


def _lease(tx: Transaction, row: Row, worker: str) -> Lease:
    state = next_state(State(row["state"]), Signal.CLAIM)
    assert state is not None, "only queued tasks are in the ready index"
    attempt = row["attempt"] + 1
    task_id = row["task_id"]
    tx.later("lease_task", seq=row["seq"], state=state, attempt=attempt, worker_id=worker, now=tx.now)
    tx.later("insert_attempt", task_id=task_id, attempt=attempt, worker_id=worker, now=tx.now)
    tx.record(task_id, attempt, Signal.CLAIM, row["state"], state, worker)
    task = rows.task(
        {
            **rows.by_name(row),
            "state": state,
            "attempt": attempt,
            "worker_id": worker,
            "heartbeat_at": tx.now,
            "progress_json": None,
            "changed_at": tx.now,
            "ready_at": None,
            "error_json": None,
        }
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
