"""The outbox of webhooks: a task's end fills it, a sender empties it. Functions over a Transaction."""

from __future__ import annotations

import secrets
from typing import Any

from ..lifecycle import State
from ..task import TaskError
from ..webhooks.hooks import endpoint_of, read_hooks
from ..webhooks.message import End
from ..webhooks.outbox import Delivery
from .rows import by_name
from .transaction import Row, Transaction

#: Nothing is put off for longer: see webhooks/sender.py.
_LONGEST_PAUSE_MS = 2 * 3600 * 1000


def tell(
    tx: Transaction,
    row: Row,
    task_id: str,
    state: State,
    error: TaskError | None = None,
    result_json: str | None = None,
) -> None:
    """Have those told who want to hear of this end of a task; `row` is of lock_task. Then `flush`."""
    if row["webhooks_json"] is None:
        return
    times = {"submitted_at": row["submitted_at"], "started_at": row["started_at"], "ended_at": tx.now}
    whose = {"tool_name": row["tool_name"], "owner": row["owner"], "attempt": row["attempt"]}
    end = End(task_id=task_id, state=state, error=error, result_json=result_json, **whose, **times)
    for hook in read_hooks(row["webhooks_json"]):
        if state in hook.states:
            tx.later(
                "insert_delivery",
                delivery_id=f"msg_{secrets.token_hex(16)}",
                task_id=task_id,
                owner=end.owner,
                url=hook.url,
                endpoint=endpoint_of(hook.url),
                body=end.message(hook.result_bytes),
                now=tx.now,
            )


def forget(tx: Transaction, row: Row) -> None:
    """Drop what is still to be told of a task that is being deleted; `row` has its id and its endpoints."""
    if row["webhooks_json"] is not None:
        tx.run("delete_deliveries", task_id=row["task_id"])


def due(tx: Transaction, limit: int) -> list[Delivery]:
    found = tx.all("due_deliveries", now=tx.now, too_late=tx.now + _LONGEST_PAUSE_MS, limit=limit)
    return [Delivery(**by_name(row)) for row in found]


def lease(tx: Transaction, delivery: Delivery, lease_s: float) -> bool:
    until = tx.now + int(lease_s * 1000)
    leased = tx.one("lease_delivery", delivery_id=delivery.delivery_id, due_at=delivery.due_at, until=until)
    return leased is not None


def delivered(tx: Transaction, delivery: Delivery) -> None:
    if tx.one("end_delivery", delivery_id=delivery.delivery_id) is not None:
        _note(tx, delivery, "told")


def not_delivered(tx: Transaction, delivery: Delivery, error: str, again_in_s: float | None) -> None:
    due_at = None if again_in_s is None else tx.now + int(again_in_s * 1000)
    kept = tx.one("fail_delivery", delivery_id=delivery.delivery_id, due_at=due_at, error=error)
    if kept is not None and due_at is None:
        _note(tx, delivery, "not_told", error=error)


def _note(tx: Transaction, delivery: Delivery, signal: str, **detail: Any) -> None:
    """A line of the task's trail that moves nothing. The URL's path, which may be a secret, is left out."""
    about = {"endpoint": delivery.endpoint, "webhook_id": delivery.delivery_id}
    tx.note(delivery.task_id, signal, **about, **detail)
