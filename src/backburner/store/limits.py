"""Concurrency and rate limits, and fair shares (docs/decisions/0031): functions over a Transaction."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any, Literal

from ..core.lifecycle import State
from ..core.limits import MINUTE_MS, STARTS, Limit, Limits, ToolLimits, names_of, tool_of
from ..core.task import NewTask
from .sql import rows
from .sql.transaction import Row, Transaction

_ABOVE_EVERY_PRIORITY = 2**31

#: The tasks to choose from: ready ones, or those that one limit holds.
Line = Literal["ready", "held"]


def choose(tx: Transaction, line: Line, queue: str, n: int, **which: Any) -> list[Row]:
    """Return up to n tasks of a queue: the highest priority first, then share by share."""
    running = Counter({row["share"]: row["leased"] for row in tx.all("leased_by_share", queue=queue)})
    chosen: list[Row] = []
    which["queue"], priority = queue, _ABOVE_EVERY_PRIORITY
    while len(chosen) < n:
        top = tx.one(f"top_{line}_priority", **which, below=priority)
        if top is None:
            break
        priority = top["priority"]
        chosen += _choose_at(tx, line, n - len(chosen), running, {**which, "priority": priority})
    return chosen


def _choose_at(
    tx: Transaction, line: Line, n: int, running: Counter[str], which: dict[str, Any]
) -> list[Row]:
    """Choose from the share with the fewest running tasks, then from the one with the oldest task."""
    shares = tx.all(f"{line}_shares", **which)
    turns = [(running[row["share"]], row["oldest"], row["share"]) for row in shares]
    heapq.heapify(turns)
    waiting: dict[str, list[Row]] = {}
    chosen: list[Row] = []
    while turns and len(chosen) < n:
        share = heapq.heappop(turns)[2]
        if share not in waiting:
            waiting[share] = tx.all(f"{line}_of_share", **which, share=share, limit=n)
        if waiting[share]:
            chosen.append(waiting[share].pop(0))
            running[share] += 1
        if waiting[share]:
            heapq.heappush(turns, (running[share], waiting[share][0]["seq"], share))
    return chosen


#: The most tasks that one sweep releases from a limit that was removed.
_RELEASED_AT_ONCE = 1000


class Room:
    """Room that limits leave for starts, counted once. A lock keeps other counts out until the commit."""

    def __init__(self, tx: Transaction, limits: Limits) -> None:
        self._tx = tx
        self._limits = limits
        _lock_counts(tx)
        running, tools = tx.send("running_under_limits"), tx.send("tool_limits")
        self._running: Counter[str] = Counter()
        for row in running.fetchall():
            for name in names_of(row["owner"], row["tool_name"], key_in(row["tool_said"])):
                self._running[name] += row["running"]
        self._tools = {row["tool_name"]: rows.record(ToolLimits, row) for row in tools.fetchall()}
        self._starts: dict[str, list[int]] = {}
        self._checked: dict[str, Limit] = {}

    def admit(self, row: Row) -> bool:
        """Count a ready task and return True if it may start; hold it otherwise. `flush` writes that."""
        said = row["tool_said"]
        own = self._tools.get(row["tool_name"]) if said else None
        limits = self._limits.of(row["owner"], row["tool_name"], key_in(said), own)
        self._checked.update((limit.name, limit) for limit in limits)
        full = next((limit for limit in limits if self._left(limit) <= 0), None)
        if full is not None:
            self._hold(row, full)
            return False
        for limit in limits:
            self._count_start(row, limit)
        if limits:
            self._write(row)
        return True

    def release_held(self) -> None:
        """Release tasks that the checked limits hold and now have room for."""
        self._tx.flush()
        for limit in self._checked.values():
            self._release(limit)

    def release_all(self) -> None:
        """As `release_held`, for every limit that holds tasks: it may have been raised or removed."""
        for row in self._tx.all("held_limits"):
            name = row["name"]
            most = self._limits.most(name, self._tools.get(tool_of(name)))
            if most is None:
                release(self._tx, name, _RELEASED_AT_ONCE)
            else:
                self._release(Limit(name, most))

    def _release(self, limit: Limit) -> None:
        left = self._left(limit)
        if left > 0:
            release(self._tx, limit.name, left)
        elif limit.of_starts:
            release(self._tx, limit.name, 1, at=self._starts[limit.name][limit.most - 1] + MINUTE_MS)

    def _left(self, limit: Limit) -> int:
        if not limit.of_starts:
            return limit.most - self._running[limit.name]
        if limit.name not in self._starts:
            since = self._tx.now - MINUTE_MS
            latest = self._tx.all("latest_starts", name=limit.name, since=since, limit=limit.most)
            self._starts[limit.name] = [row["at"] for row in latest]
        return limit.most - len(self._starts[limit.name])

    def _count_start(self, row: Row, limit: Limit) -> None:
        if limit.of_starts:
            self._starts[limit.name].insert(0, self._tx.now)
            start = {"name": limit.name, "at": self._tx.now, "seq": row["seq"], "attempt": row["attempt"]}
            self._tx.defer("insert_start", **start)
        else:
            self._running[limit.name] += 1

    def _hold(self, row: Row, limit: Limit) -> None:
        before = self._tx.one("last_hold", seq=row["seq"])
        self._tx.defer("hold_task", seq=row["seq"])
        self._write(row, limit)
        if before is None or before["waits_for"] != limit.name:
            detail = {"limit": limit.name, "reason": limit.reason}
            self._tx.record(
                row["task_id"], row["attempt"], "held", row["state"], State.QUEUED, None, **detail
            )

    def _write(self, row: Row, limit: Limit | None = None) -> None:
        self._tx.defer(
            "upsert_task_limits",
            seq=row["seq"],
            queue=row["queue"],
            priority=row["priority"],
            share=row["share"],
            tool_said=row["tool_said"] or "",
            held=int(limit is not None),
            waits_for=limit and limit.name,
            reason=limit and limit.reason,
        )


def insert(tx: Transaction, new: NewTask, seq: int) -> None:
    """Insert the limits that the tool of a new task has."""
    if new.limits is None:
        return
    tx.defer(
        "upsert_task_limits",
        seq=seq,
        queue=new.queue,
        priority=new.priority,
        share=new.share,
        tool_said=f"={new.concurrency_key}",
        held=0,
        waits_for=None,
        reason=None,
    )
    tx.run("upsert_tool_limits", tool_name=new.tool_name, **rows.values_of(new.limits))


def key_in(tool_said: str | None) -> str:
    """Return the concurrency key of a task; empty if it has none."""
    return tool_said[1:] if tool_said else ""


def release_next(tx: Transaction, row: Row) -> None:
    """Release a task in place of one (a `lock_task` row) that ended or left its queue."""
    if row["tool_said"] is None:
        return
    _lock_counts(tx)
    queued = row["state"] == State.QUEUED
    if queued:
        tx.run("clear_hold", seq=row["seq"])
    for name in names_of(row["owner"], row["tool_name"], key_in(row["tool_said"])):
        if queued or not name.startswith(STARTS):
            release(tx, name, 1)


def release(tx: Transaction, name: str, n: int, at: int | None = None) -> None:
    """Make the best n tasks of each queue that a limit holds ready, now or at a time.

    Any of the queues may be the one with a free worker.
    """
    for lane in tx.all("held_queues", name=name):
        for row in choose(tx, "held", lane["queue"], n, name=name):
            tx.run("release_task", seq=row["seq"], ready_at=at)
            if at is None:
                tx.run("clear_hold", seq=row["seq"])
        if at is None:
            tx.topics.add(f"queue:{lane['queue']}")
        else:
            tx.set_due(at)


def _lock_counts(tx: Transaction) -> None:
    """Serialize counts and releases, on a database with concurrent writers."""
    if tx.has("lock_counts"):
        tx.run("lock_counts")
