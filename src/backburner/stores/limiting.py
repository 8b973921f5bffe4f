"""Limits on what runs at a time and starts in a minute (docs/decisions/0031). Functions over a Transaction.

A task that a limit lets not start is held: it leaves the ready index until one leaves that the limit
counts. Then the best that it holds in each queue is in line again, and its claim asks all its limits anew:
so no place is ever taken for a task that does not start. Whoever sees that a limit has room, and did not
use it, passes it on.
"""

from __future__ import annotations

from collections import Counter

from ..lifecycle import State
from ..limits import MINUTE_MS, STARTS, Limit, Limits, ToolLimits, names_of, tool_of
from ..task import NewTask
from .sharing import choose
from .transaction import Row, Transaction

#: So many are let go in one round of the keeper by a limit that is no more.
_AT_ONCE = 1000


class Room:
    """What the limits still let start, counted once; until the end of the transaction nobody else counts."""

    def __init__(self, tx: Transaction, limits: Limits) -> None:
        self._tx = tx
        self._limits = limits
        _take_turns(tx)
        running, tools = tx.ask("running_under_limits"), tx.ask("tool_limits")
        self._running: Counter[str] = Counter()
        for row in running.fetchall():
            for name in names_of(row["owner"], row["tool_name"], key_in(row["tool_said"])):
                self._running[name] += row["running"]
        numbers = ToolLimits.__slots__
        self._tools = {
            row["tool_name"]: ToolLimits(**{name: row[name] for name in numbers}) for row in tools.fetchall()
        }
        self._starts: dict[str, list[int]] = {}
        self._asked: dict[str, Limit] = {}

    def lets_start(self, row: Row) -> bool:
        """Whether a ready task may start now, and then it counts; else it is held. `flush` writes it."""
        said = row["tool_said"]
        own = self._tools.get(row["tool_name"]) if said else None
        limits = self._limits.of(row["owner"], row["tool_name"], key_in(said), own)
        self._asked.update((limit.name, limit) for limit in limits)
        full = next((limit for limit in limits if self._left(limit) <= 0), None)
        if full is not None:
            self._hold(row, full)
            return False
        for limit in limits:
            self._count_start(row, limit)
        if limits:
            self._write(row)
        return True

    def pass_on(self) -> None:
        """What the limits that were asked still have room for is in line; or will be, if that is known."""
        self._tx.flush()
        for limit in self._asked.values():
            self._let_go(limit)

    def look_again(self) -> None:
        """As `pass_on`, for every limit that holds tasks: it may be wider than it was, or gone."""
        for row in self._tx.all("held_limits"):
            name = row["name"]
            most = self._limits.most(name, self._tools.get(tool_of(name)))
            if most is None:
                put_in_line(self._tx, name, _AT_ONCE)
            else:
                self._let_go(Limit(name, most))

    def _let_go(self, limit: Limit) -> None:
        left = self._left(limit)
        if left > 0:
            put_in_line(self._tx, limit.name, left)
        elif limit.of_starts:
            put_in_line(self._tx, limit.name, 1, at=self._starts[limit.name][limit.most - 1] + MINUTE_MS)

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
            self._tx.later("insert_start", **start)
        else:
            self._running[limit.name] += 1

    def _hold(self, row: Row, limit: Limit) -> None:
        before = self._tx.one("last_held_by", seq=row["seq"])
        self._tx.later("hold_task", seq=row["seq"])
        self._write(row, limit)
        if before is None or before["waits_for"] != limit.name:
            detail = {"limit": limit.name, "reason": limit.reason}
            self._tx.record(
                row["task_id"], row["attempt"], "held", row["state"], State.QUEUED, None, **detail
            )

    def _write(self, row: Row, limit: Limit | None = None) -> None:
        self._tx.later(
            "keep_limits",
            seq=row["seq"],
            queue=row["queue"],
            priority=row["priority"],
            share=row["share"],
            tool_said=row["tool_said"] or "",
            held=int(limit is not None),
            waits_for=limit and limit.name,
            reason=limit and limit.reason,
        )


def submitted(tx: Transaction, new: NewTask, seq: int) -> None:
    """Keep what its tool says of a new task's limits."""
    if new.limits is None:
        return
    tx.later(
        "keep_limits",
        seq=seq,
        queue=new.queue,
        priority=new.priority,
        share=new.share,
        tool_said=f"={new.concurrency_key}",
        held=0,
        waits_for=None,
        reason=None,
    )
    numbers = {name: getattr(new.limits, name) for name in ToolLimits.__slots__}
    tx.run("keep_tool_limits", tool_name=new.tool_name, **numbers)


def key_in(tool_said: str | None) -> str:
    """The key that a tool gave its task; empty where it gave none."""
    return tool_said[1:] if tool_said else ""


def has_left(tx: Transaction, row: Row) -> None:
    """A task (of lock_task) has left its worker, or its line: what its limits hold may start in its place."""
    if row["tool_said"] is None:
        return
    _take_turns(tx)
    queued = row["state"] == State.QUEUED
    if queued:
        tx.run("hold_no_more", seq=row["seq"])
    for name in names_of(row["owner"], row["tool_name"], key_in(row["tool_said"])):
        if queued or not name.startswith(STARTS):
            put_in_line(tx, name, 1)


def put_in_line(tx: Transaction, name: str, n: int, at: int | None = None) -> None:
    """Let the best that a limit holds be claimed, so many of each queue: now, or at that time.

    Of each, since nobody knows which queue has a worker that is free.
    """
    for lane in tx.all("held_queues", name=name):
        for row in choose(tx, "held", lane["queue"], n, name=name):
            tx.run("put_in_line", seq=row["seq"], ready_at=at)
            if at is None:
                tx.run("hold_no_more", seq=row["seq"])
        if at is None:
            tx.topics.add(f"queue:{lane['queue']}")
        else:
            tx.falls_due(at)


def _take_turns(tx: Transaction) -> None:
    """Who counts and who leaves do not do it at the same moment, on a database where they could."""
    if tx.has("lock_counted"):
        tx.run("lock_counted")
