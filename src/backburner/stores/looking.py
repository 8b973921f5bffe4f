"""What is looked at from outside, and pausing. Functions over a Transaction."""

from __future__ import annotations

import re

from ..errors import InvalidCursor
from ..lifecycle import State
from ..looking import Ended, Happening, Happenings, PausedQueue
from . import rows
from .transaction import Row, Transaction

#: The transaction, where those commit side by side, and the number of an event.
_PLACE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


def happenings(tx: Transaction, after: str | None, limit: int) -> Happenings:
    if after is None:
        return Happenings([], _place(tx.one("end_of_order")))
    txid, number = at = _read(after)
    first = tx.one("first_in_order")
    missed = first is not None and first["number"] > 1 and at < (first["txid"], first["number"] - 1)
    found = tx.all("events_after", txid=txid, number=number, limit=limit)
    events = [
        Happening(_place(row), row["owner"], row["tool_name"], row["queue"], rows.event(row))
        for row in found
        if row["owner"] is not None  # else it was deleted with its task
    ]
    return Happenings(events, _place(found[-1]) if found else after, missed, more=len(found) == limit)


def _place(row: Row | None) -> str:
    assert row is not None, "an order has an end"
    return f"{row['txid']}-{row['number']}"


def _read(place: str) -> tuple[int, int]:
    found = _PLACE.fullmatch(place)
    if found is None:
        raise InvalidCursor
    return int(found[1]), int(found[2])


def ended(
    tx: Transaction,
    since: int,
    until: int,
    every_ms: int,
    owner: str | None,
    tool_name: str | None,
    queue: str | None,
) -> list[Ended]:
    found = tx.all(
        "ended", since=since, until=until, every_ms=every_ms, owner=owner, tool_name=tool_name, queue=queue
    )
    return [
        Ended(row["stretch"], State(row["state"]), row["wait_class"], row["run_class"], row["tasks"])
        for row in found
    ]


def resume_queue(tx: Transaction, queue: str) -> None:
    tx.run("resume_queue", queue=queue)
    tx.topics.add(f"queue:{queue}")


def paused_queues(tx: Transaction) -> list[PausedQueue]:
    return [PausedQueue(**rows.by_name(row)) for row in tx.all("paused_queues")]
