"""Whose turn it is: the choice among tasks by priority, then share by share, then first come."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any, Literal

from .transaction import Row, Transaction

_ABOVE_EVERY_PRIORITY = 2**31

#: The tasks to choose from: those that can be claimed, or those that one limit holds.
Line = Literal["ready", "held"]


def choose(tx: Transaction, line: Line, queue: str, n: int, **which: Any) -> list[Row]:
    """So many of a queue: the highest priority first, and within one priority share by share."""
    under_way = Counter({row["share"]: row["leased"] for row in tx.all("leased_by_share", queue=queue)})
    chosen: list[Row] = []
    which["queue"], priority = queue, _ABOVE_EVERY_PRIORITY
    while len(chosen) < n:
        top = tx.one(f"top_{line}_priority", **which, below=priority)
        if top is None:
            break
        priority = top["priority"]
        chosen += _choose_at(tx, line, n - len(chosen), under_way, {**which, "priority": priority})
    return chosen


def _choose_at(
    tx: Transaction, line: Line, n: int, under_way: Counter[str], which: dict[str, Any]
) -> list[Row]:
    """The share with the fewest tasks under way goes first, then the one with the oldest task."""
    shares = tx.all(f"{line}_shares", **which)
    turns = [(under_way[row["share"]], row["oldest"], row["share"]) for row in shares]
    heapq.heapify(turns)
    waiting: dict[str, list[Row]] = {}
    chosen: list[Row] = []
    while turns and len(chosen) < n:
        share = heapq.heappop(turns)[2]
        if share not in waiting:
            waiting[share] = tx.all(f"{line}_of_share", **which, share=share, limit=n)
        if waiting[share]:
            chosen.append(waiting[share].pop(0))
            under_way[share] += 1
        if waiting[share]:
            heapq.heappush(turns, (under_way[share], waiting[share][0]["seq"], share))
    return chosen
