"""Monitoring queries: event feed, completions, completion counts, paused queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from ..core.lifecycle import Signal, State
from ..core.monitoring import (
    EVENTS_IN_ORDER,
    Completion,
    Ended,
    FeedCursor,
    FeedEvent,
    FeedPage,
    PausedQueue,
)
from ..errors import InvalidCursor
from .sql import rows
from .sql.transaction import (
    Row,
    SqlBase,
    Transaction,
    read,
    read_snapshot,
    write,
    write_relaxed,
)

#: A place in the feed: the transaction, where the database has concurrent ones, and the event's number.
_PLACE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_OUTCOMES = {
    Signal.SUCCEED: "succeeded",
    Signal.CONFIRM: "cancelled",
    Signal.HAND_BACK: "handed_back",
    Signal.TIME_OUT: "timed_out",
}


class MonitoringStore(Protocol):
    def happenings(self, after: str | None = None, limit: int = 500) -> FeedPage:
        """Return the events after a place, each exactly once; with None, only the end of the feed.

        Raises InvalidCursor.
        """
        ...

    def forget_order(self, keep: int = EVENTS_IN_ORDER) -> None:
        """Drop all but the latest events from the feed; the events themselves stay."""
        ...

    def ended(
        self,
        since: int,
        until: int,
        every_ms: int,
        *,
        owner: str | None = None,
        tool_name: str | None = None,
        queue: str | None = None,
    ) -> list[Ended]:
        """Count the tasks that ended between two times, in periods of `every_ms` from `since` on."""
        ...

    def pause_queue(self, queue: str, by: str) -> None:
        """Stop claims from this queue until it is resumed."""
        ...

    def resume_queue(self, queue: str) -> None: ...

    def paused_queues(self) -> list[PausedQueue]: ...

    def endings(self, after: FeedCursor, until: int, limit: int = 10_000) -> list[Completion]:
        """Return the completions after a cursor and not after a time, in order.

        Concurrent writers may still add completions to the last moments before now.
        """
        ...

    def observe(self, seen: Callable[[str, float], object]) -> None:
        """Call `seen` with `read` or `write` and the seconds of each transaction of this process."""
        ...


class SqlMonitoring(SqlBase):
    @read_snapshot
    def happenings(self, tx: Transaction, after: str | None = None, limit: int = 500) -> FeedPage:
        if after is None:
            end = tx.one("feed_end")
            assert end is not None, "the statement returns one row"
            return FeedPage([], _place(end))
        match = _PLACE.fullmatch(after)
        if match is None:
            raise InvalidCursor
        at = int(match[1]), int(match[2])
        first = tx.one("first_event")
        missed = first is not None and first["number"] > 1 and at < (first["txid"], first["number"] - 1)
        found = tx.all("feed", txid=at[0], number=at[1], limit=limit)
        events = [
            FeedEvent(_place(row), row["owner"], row["tool_name"], row["queue"], rows.event(row))
            for row in found
            if row["owner"] is not None  # else the event was deleted with its task
        ]
        return FeedPage(events, _place(found[-1]) if found else after, missed, more=len(found) == limit)

    @write_relaxed
    def forget_order(self, tx: Transaction, keep: int = EVENTS_IN_ORDER) -> None:
        tx.run("trim_event_order", keep=keep)

    @read
    def ended(
        self,
        tx: Transaction,
        since: int,
        until: int,
        every_ms: int,
        *,
        owner: str | None = None,
        tool_name: str | None = None,
        queue: str | None = None,
    ) -> list[Ended]:
        filters = {"owner": owner, "tool_name": tool_name, "queue": queue}
        found = tx.all("completion_counts", since=since, until=until, every_ms=every_ms, **filters)
        return [
            Ended(row["stretch"], State(row["state"]), row["wait_class"], row["run_class"], row["tasks"])
            for row in found
        ]

    @write
    def pause_queue(self, tx: Transaction, queue: str, by: str) -> None:
        tx.run("pause_queue", queue=queue, by=by, now=tx.now)

    @write
    def resume_queue(self, tx: Transaction, queue: str) -> None:
        tx.run("resume_queue", queue=queue)
        tx.topics.add(f"queue:{queue}")

    @read
    def paused_queues(self, tx: Transaction) -> list[PausedQueue]:
        return [rows.record(PausedQueue, row) for row in tx.all("paused_queues")]

    @read
    def endings(
        self, tx: Transaction, after: FeedCursor, until: int, limit: int = 10_000
    ) -> list[Completion]:
        cursor = {"after_ts": after.at, "after_task": after.task_id, "after_seq": after.seq}
        return [_completion(row) for row in tx.all("completions", **cursor, until=until, limit=limit)]


def _place(row: Row) -> str:
    return f"{row['txid']}-{row['number']}"


def _completion(row: Row) -> Completion:
    had_attempt = row["from_state"] != State.QUEUED
    started_at = row["started_at"] if had_attempt else None
    return Completion(
        mark=FeedCursor(row["ts"], row["task_id"], row["seq"]),
        tool_name=row["tool_name"],
        queue=row["queue"],
        state=State(row["to_state"]),
        outcome=_outcome(row) if had_attempt else None,
        waited_s=None if started_at is None else max(0, started_at - row["queued_at"]) / 1000,
        ran_s=None if started_at is None else max(0, row["ts"] - started_at) / 1000,
    )


def _outcome(row: Row) -> str:
    """Return the outcome of an attempt. Its task may have another: a cancelled attempt may fail."""
    if row["detail_json"] and rows.decode(row["detail_json"]).get("error") == "worker_lost":
        return "lost"
    return _OUTCOMES.get(row["signal"], "failed")
