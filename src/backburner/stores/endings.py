"""What has come to an end, from the audit trails. Functions over a Transaction."""

from __future__ import annotations

from ..endings import Ending, Mark
from ..lifecycle import Signal, State
from . import rows
from .transaction import Row, Transaction

_OUTCOMES = {
    Signal.SUCCEED: "succeeded",
    Signal.CONFIRM: "cancelled",
    Signal.HAND_BACK: "handed_back",
    Signal.TIME_OUT: "timed_out",
}


def after(tx: Transaction, mark: Mark, until: int, limit: int) -> list[Ending]:
    found = tx.all(
        "endings", after_ts=mark.at, after_task=mark.task_id, after_seq=mark.seq, until=until, limit=limit
    )
    return [_ending(row) for row in found]


def _ending(row: Row) -> Ending:
    had_attempt = row["from_state"] != State.QUEUED
    started_at = row["started_at"] if had_attempt else None
    return Ending(
        mark=Mark(row["ts"], row["task_id"], row["seq"]),
        tool_name=row["tool_name"],
        queue=row["queue"],
        state=State(row["to_state"]),
        outcome=_outcome(row) if had_attempt else None,
        waited_s=None if started_at is None else max(0, started_at - row["queued_at"]) / 1000,
        ran_s=None if started_at is None else max(0, row["ts"] - started_at) / 1000,
    )


def _outcome(row: Row) -> str:
    """How an attempt ended, whatever its task became by it: one that is being cancelled may fail."""
    if row["detail_json"] and rows.decode(row["detail_json"]).get("error") == "worker_lost":
        return "lost"
    return _OUTCOMES.get(row["signal"], "failed")
