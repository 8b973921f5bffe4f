"""Ending attempts, and what a worker writes about its own. Functions over a Transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import LeaseLost
from ..lifecycle import LEASED, Signal, State, next_state
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
from .limiting import has_left
from .transaction import Answer, Row, Transaction

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
            ran=row["started_at"] is not None,
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
    detail = _detail(outcome, error, delay_s if after is State.QUEUED else None)
    tx.record(task_id, row["attempt"], signal, before, after, row["worker_id"], **detail)
    has_left(tx, row)
    return after


def _detail(outcome: Outcome, error: TaskError | None, delay_s: float | None) -> dict[str, Any]:
    """What the audit trail says of an end."""
    detail: dict[str, Any] = {"error": error.type, "message": error.message} if error else {}
    if isinstance(outcome, HandedBack):
        detail["reason"] = outcome.reason
    return detail if delay_s is None else {**detail, "delay_s": delay_s}


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
