"""Claiming tasks, and what a worker writes about its attempt. Functions over a Transaction."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import LeaseLost
from ..lifecycle import LEASED, Signal, State, next_state
from ..limits import Limits
from ..reports import (
    Asked,
    Cancelled,
    Change,
    Checkpointed,
    Failed,
    HandedBack,
    Logged,
    Outcome,
    Progressed,
    Registered,
    Started,
    Stopping,
    Succeeded,
    TimedOut,
)
from ..store import Lease, LeaseView
from ..task import TaskError, Worker
from . import deliveries, rows, task_logs
from .limiting import Room, has_left
from .sharing import choose
from .transaction import Answer, Row, Transaction

#: So often a claim looks for others in the place of what limits hold, and at so many at least.
_LOOKS, _LEAST_LOOKED_AT = 4, 32

# -- claiming ------------------------------------------------------------------------------------


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


# -- moving through the lifecycle ----------------------------------------------------------------


def end(tx: Transaction, row: Row, task_id: str, outcome: Outcome) -> State:
    """End the attempt that `row` (of lock_task) is at, and its task, or queue that again; then `flush`."""
    before = State(row["state"])
    signal, delay_s = _signal_of(outcome, rows.retry(row["retry_json"]), row["failures"], before)
    after = next_state(before, signal)
    if after is None:
        raise LeaseLost(task_id=task_id, attempt=row["attempt"])
    error = None if isinstance(outcome, Succeeded | HandedBack) else outcome.error
    failures = row["failures"] + (0 if error is None else 1)
    error_json = rows.error_json(error)
    if after is State.QUEUED:
        ready_at = tx.now + int(delay_s * 1000) if delay_s else None
        tx.later(
            "requeue_task",
            task_id=task_id,
            state=after,
            now=tx.now,
            ready_at=ready_at,
            failures=failures,
            error_json=error_json,
        )
        tx.topics.add(f"queue:{row['queue']}")
    else:
        result_json = outcome.result_json if isinstance(outcome, Succeeded) else None
        told = rows.cancel_error(row["cancel_reason"], error) if after is State.CANCELLED else error
        tx.later(
            "finish_task",
            task_id=task_id,
            state=after,
            now=tx.now,
            failures=failures,
            started_at=row["started_at"],
            result_json=result_json,
            error_json=rows.error_json(told),
            metrics_json=rows.metrics_json(None if isinstance(outcome, HandedBack) else outcome.metrics),
        )
        deliveries.tell(tx, row, task_id, after, told, result_json)
        if row["has_checkpoint"]:
            tx.later("delete_checkpoint", task_id=task_id)
        if isinstance(outcome, Succeeded) and row["started_at"] is not None:
            _remember_runtime(tx, row, task_id, outcome)
    tx.later(
        "end_attempt",
        task_id=task_id,
        attempt=row["attempt"],
        now=tx.now,
        outcome=type(outcome).__name__.lower(),
        error_json=error_json,
        started_at=row["started_at"],
        pid=row.get("pid"),
    )
    detail: dict[str, Any] = {"error": error.type, "message": error.message} if error else {}
    if isinstance(outcome, HandedBack):
        detail["reason"] = outcome.reason
    if delay_s is not None and after is State.QUEUED:
        detail["delay_s"] = delay_s
    tx.record(task_id, row["attempt"], signal, before, after, row["worker_id"], **detail)
    has_left(tx, row)
    return after


def _remember_runtime(tx: Transaction, row: Row, task_id: str, success: Succeeded) -> None:
    tx.later(
        "insert_runtime",
        task_id=task_id,
        tool_name=row["tool_name"],
        inputs_bytes=row["inputs_bytes"],
        hint_s=row["hint_s"],
        now=tx.now,
        seconds=(success.metrics or {}).get("wall_s", (tx.now - row["started_at"]) / 1000),
    )


def _signal_of(outcome: Outcome, policy: Any, failures: int, before: State) -> tuple[Signal, float | None]:
    match outcome:
        case Succeeded():
            return Signal.SUCCEED, None
        case TimedOut():
            return Signal.TIME_OUT, None
        case Cancelled():
            # A tool may say that it was cancelled when nobody asked: then it has failed.
            return (Signal.CONFIRM if next_state(before, Signal.CONFIRM) else Signal.FAIL), None
        case HandedBack():
            return Signal.HAND_BACK, None
        case Failed(error=error, retryable=retryable):
            delay_s = policy.delay_s(error, failures + 1, retryable=retryable)
            return (Signal.FAIL if delay_s is None else Signal.RETRY), delay_s


def lost(worker_id: str | None) -> Failed:
    """The outcome of an attempt whose worker is gone."""
    return Failed(TaskError("worker_lost", f"The worker {worker_id} went away while it ran the task."))


# -- a worker's own writes -----------------------------------------------------------------------


def report(tx: Transaction, lease: Lease, changes: Sequence[Change]) -> None:
    """Write what happened to an attempt. Raises LeaseLost if it is not the current one."""
    if report_all(tx, [(lease, changes)]):
        raise LeaseLost(task_id=lease.task_id, attempt=lease.attempt)


Reports = Sequence[tuple[Lease, Sequence[Change]]]


def lock(tx: Transaction, reports: Reports) -> dict[str, Answer]:
    """Begin to lock the tasks of reports."""
    # All who lock several tasks do it in the same order, so that none waits for the other.
    task_ids = sorted({lease.task_id for lease, _ in reports})
    return {task_id: tx.ask("lock_task", task_id=task_id) for task_id in task_ids}


def report_all(tx: Transaction, reports: Reports, locked: Mapping[str, Answer] | None = None) -> list[Lease]:
    """Write many reports. Gives back the leases that are lost; their reports changed nothing."""
    asked = lock(tx, reports) if locked is None else locked
    tasks = {task_id: rows.by_name(row) for task_id, answer in asked.items() if (row := answer.fetchone())}
    stale = []
    for lease, changes in reports:
        task = tasks.get(lease.task_id)
        if task is None or task["attempt"] != lease.attempt or not _may_follow(task, changes):
            stale.append(lease)
            continue
        over = any(isinstance(change, Outcome) for change in changes)
        for change in changes:
            if isinstance(change, Started):
                _start(tx, lease, task, change, over)
            else:
                _write(tx, lease, task, change)
    tx.flush()
    return stale


_SIGNALS = {Started: Signal.START, Asked: Signal.ASK, Stopping: Signal.STOP}


def _may_follow(task: Row, changes: Sequence[Change]) -> bool:
    """Whether all of the changes may happen to a task, one after the other, before any is written."""
    state: State | None = State(task["state"])
    for change in changes:
        if state not in LEASED:
            return False
        if isinstance(change, Outcome):
            signal, _ = _signal_of(change, rows.retry(task["retry_json"]), task["failures"], state)
            state = next_state(state, signal)
        elif type(change) in _SIGNALS:  # what a cancel that came in between has made moot is passed over
            state = next_state(state, _SIGNALS[type(change)]) or state
    return state is not None


def _start(tx: Transaction, lease: Lease, task: dict[str, Any], started: Started, over: bool) -> None:
    """The attempt has begun. If it is over by now as well, its end writes the rows, once for both."""
    at = started.at or tx.now
    task["pid"], task["started_at"] = started.pid, task["started_at"] or at
    if not over:
        key = {"task_id": lease.task_id, "attempt": lease.attempt}
        tx.run("start_attempt", **key, now=tx.now, started_at=at, pid=started.pid)
        _move(tx, lease, task, Signal.START, "start_task", started_at=at, timeout_at=started.timeout_at)
    elif after := next_state(State(task["state"]), Signal.START):
        tx.record(lease.task_id, lease.attempt, Signal.START, task["state"], after, task["worker_id"])
        task["state"] = after


def _write(tx: Transaction, lease: Lease, task: dict[str, Any], change: Change) -> None:
    """Write one change. `task` is the locked row, and is kept as it would be read again."""
    key = {"task_id": lease.task_id, "attempt": lease.attempt}
    match change:
        case Progressed(progress=progress):
            tx.run("set_progress", **key, progress_json=rows.encode(progress.to_dict()), now=tx.now)
        case Logged(lines=lines):
            task_logs.append(tx, lease.task_id, lines)
        case Checkpointed(data_json=data_json):
            tx.run("keep_checkpoint", **key, ts=tx.now, data_json=data_json)
            task["has_checkpoint"] = True
        case Registered(artifact=artifact):
            tx.run("insert_artifact", **asdict(artifact))
        case Asked(requests=requests) if next_state(State(task["state"]), Signal.ASK):
            for request in requests:
                tx.run(
                    "ask",
                    task_id=lease.task_id,
                    key=request.key,
                    attempt=lease.attempt,
                    method=request.method,
                    params_json=rows.encode(dict(request.params)),
                    asked_at=request.asked_at,
                )
            _move(tx, lease, task, Signal.ASK, "move_task", worker_id=task["worker_id"])
        case Stopping():
            _move(tx, lease, task, Signal.STOP, "move_task", worker_id=task["worker_id"])
        case Succeeded() | Failed() | TimedOut() | Cancelled() | HandedBack():
            task["state"] = end(tx, task, lease.task_id, change)
    tx.topics.add(f"task:{lease.task_id}")


def _move(
    tx: Transaction, lease: Lease, task: dict[str, Any], signal: Signal, statement: str, **parameters: Any
) -> None:
    """Take the step if the table allows it. A cancel that came in between makes START and ASK moot."""
    before = State(task["state"])
    after = next_state(before, signal)
    if after is None:
        return
    tx.run(statement, task_id=lease.task_id, state=after, now=tx.now, **parameters)
    tx.record(lease.task_id, lease.attempt, signal, before, after, task["worker_id"])
    task["state"] = after


def heartbeat(tx: Transaction, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]:
    views = []
    for lease in leases:
        row = tx.one("task_head", task_id=lease.task_id)
        held = row is not None and row["attempt"] == lease.attempt and row["state"] in LEASED
        if held:
            tx.run("beat", task_id=lease.task_id, attempt=lease.attempt, now=tx.now)
        views.append(LeaseView(held, State(row["state"]) if row else State.EXPIRED))
    tx.many("write_worker", [{**asdict(worker), "last_heartbeat": tx.now} for worker in workers])
    return views
