"""Ends of attempts, and the reports of workers: functions over a Transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.lifecycle import LEASED, Signal, State, next_state
from ..core.reports import (
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
from ..errors import LeaseLost
from . import limits, outputs, webhooks
from .sql import rows
from .sql.transaction import Result, Row, Transaction

if TYPE_CHECKING:
    from .leases import Lease, Reports


def end(tx: Transaction, row: Row, task_id: str, outcome: Outcome) -> State:
    """End the current attempt of a `lock_task` row, and finish or requeue its task. Call `flush` after it."""
    before = State(row["state"])
    signal, delay_s = _signal_of(outcome, rows.retry(row["retry_json"]), row["failures"], before)
    after = next_state(before, signal)
    if after is None:
        raise LeaseLost(task_id=task_id, attempt=row["attempt"])
    error = None if isinstance(outcome, Succeeded | HandedBack) else outcome.error
    failures = row["failures"] + (0 if error is None else 1)
    error_json = rows.error_json(error)
    if after is State.QUEUED:
        tx.defer(
            "requeue_task",
            task_id=task_id,
            state=after,
            now=tx.now,
            ready_at=tx.now + int(delay_s * 1000) if delay_s else None,
            failures=failures,
            error_json=error_json,
            ran=row["started_at"] is not None,
        )
        tx.topics.add(f"queue:{row['queue']}")
    else:
        result_json = outcome.result_json if isinstance(outcome, Succeeded) else None
        shown = rows.cancel_error(row["cancel_reason"], error) if after is State.CANCELLED else error
        tx.defer(
            "finish_task",
            task_id=task_id,
            state=after,
            now=tx.now,
            failures=failures,
            started_at=row["started_at"],
            result_json=result_json,
            error_json=rows.error_json(shown),
            metrics_json=rows.metrics_json(None if isinstance(outcome, HandedBack) else outcome.metrics),
        )
        webhooks.enqueue(tx, row, task_id, after, shown, result_json)
        if row["has_checkpoint"]:
            tx.defer("delete_checkpoint", task_id=task_id)
        if isinstance(outcome, Succeeded) and row["started_at"] is not None:
            tx.defer(
                "insert_runtime",
                task_id=task_id,
                tool_name=row["tool_name"],
                inputs_bytes=row["inputs_bytes"],
                inputs_hash=row["inputs_hash"],
                hint_s=row["hint_s"],
                now=tx.now,
                seconds=(outcome.metrics or {}).get("wall_s", (tx.now - row["started_at"]) / 1000),
            )
    tx.defer(
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
    if after is State.QUEUED and delay_s is not None:
        detail["delay_s"] = delay_s
    tx.record(task_id, row["attempt"], signal, before, after, row["worker_id"], **detail)
    limits.release_next(tx, row)
    return after


def _signal_of(outcome: Outcome, policy: Any, failures: int, before: State) -> tuple[Signal, float | None]:
    match outcome:
        case Succeeded():
            return Signal.SUCCEED, None
        case TimedOut():
            return Signal.TIME_OUT, None
        case Cancelled():
            # A tool that reports a cancel that was never requested has failed.
            return (Signal.CONFIRM if next_state(before, Signal.CONFIRM) else Signal.FAIL), None
        case HandedBack():
            return Signal.HAND_BACK, None
        case Failed(error=error, retryable=retryable):
            delay_s = policy.delay_s(error, failures + 1, retryable=retryable)
            return (Signal.FAIL if delay_s is None else Signal.RETRY), delay_s


# -- reports -------------------------------------------------------------------------------------


def send_locks(tx: Transaction, reports: Reports) -> dict[str, Result]:
    """Start to lock the tasks of reports, always in the same order, which avoids deadlocks."""
    task_ids = sorted({lease.task_id for lease, _ in reports})
    return {task_id: tx.send("lock_task", task_id=task_id) for task_id in task_ids}


def report_all(tx: Transaction, reports: Reports, locked: Mapping[str, Result] | None = None) -> list[Lease]:
    """Write reports. Return the lost leases, whose reports changed nothing."""
    locks = send_locks(tx, reports) if locked is None else locked
    tasks = {task_id: rows.by_name(row) for task_id, result in locks.items() if (row := result.fetchone())}
    lost = []
    for lease, changes in reports:
        task = tasks.get(lease.task_id)
        if task is None or task["attempt"] != lease.attempt or not _may_follow(task, changes):
            lost.append(lease)
            continue
        over = any(isinstance(change, Outcome) for change in changes)
        for change in changes:
            if isinstance(change, Started):
                _start(tx, lease, task, change, over)
            else:
                _write(tx, lease, task, change)
    tx.flush()
    return lost


_SIGNALS = {Started: Signal.START, Asked: Signal.ASK, Stopping: Signal.STOP}


def _may_follow(task: Row, changes: Sequence[Change]) -> bool:
    """Return whether the lifecycle allows all changes, one after the other."""
    state: State | None = State(task["state"])
    for change in changes:
        if state not in LEASED:
            return False
        if isinstance(change, Outcome):
            signal, _ = _signal_of(change, rows.retry(task["retry_json"]), task["failures"], state)
            state = next_state(state, signal)
        elif type(change) in _SIGNALS:  # a cancel may have overtaken the change, which is then ignored
            state = next_state(state, _SIGNALS[type(change)]) or state
    return state is not None


def _start(tx: Transaction, lease: Lease, task: dict[str, Any], started: Started, over: bool) -> None:
    """Write the start of an attempt. If its end is reported too, that writes the rows, once for both."""
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
    """Write one change, and update `task`, the locked row, as if it was read again."""
    key = {"task_id": lease.task_id, "attempt": lease.attempt}
    match change:
        case Progressed(progress=progress):
            tx.run("set_progress", **key, progress_json=rows.encode(progress.to_dict()), now=tx.now)
        case Logged(lines=lines):
            outputs.append(tx, lease.task_id, lines)
        case Checkpointed(data_json=data_json):
            tx.run("upsert_checkpoint", **key, ts=tx.now, data_json=data_json)
            task["has_checkpoint"] = True
        case Registered(artifact=artifact):
            tx.run("insert_artifact", **rows.values_of(artifact))
        case Asked(requests=requests) if next_state(State(task["state"]), Signal.ASK):
            for request in requests:
                tx.run(
                    "insert_input_request",
                    **key,
                    key=request.key,
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
    """Change the state if the lifecycle allows it. A cancel may have overtaken START and ASK."""
    before = State(task["state"])
    after = next_state(before, signal)
    if after is None:
        return
    tx.run(statement, task_id=lease.task_id, state=after, now=tx.now, **parameters)
    tx.record(lease.task_id, lease.attempt, signal, before, after, task["worker_id"])
    task["state"] = after
