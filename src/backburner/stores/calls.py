"""Open calls, and notes in audit trails. Functions over a Transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ..open_call import Note, OpenCall
from .transaction import Transaction


def write(tx: Transaction, kept: Sequence[OpenCall], closed: Sequence[str], notes: Sequence[Note]) -> None:
    tx.many(
        "keep_call",
        [
            {
                "task_id": call.task_id,
                "owner": call.owner,
                "tool_name": call.tool_name,
                "inputs_hash": call.inputs_hash,
                "attended_until": tx.now + call.attended_ms,
                "given_up": call.given_up,
            }
            for call in kept
        ],
    )
    tx.many("close_call", [{"task_id": task_id} for task_id in closed])
    for note in notes:
        tx.note(note.task_id, note.signal, **note.detail)


def like(tx: Transaction, owner: str, tool_name: str, inputs_hash: str) -> list[OpenCall]:
    found = tx.all("calls_like", owner=owner, tool_name=tool_name, inputs_hash=inputs_hash)
    return [
        OpenCall(
            row["task_id"], owner, tool_name, inputs_hash, row["attended_until"] - tx.now, row["given_up"]
        )
        for row in found
    ]
