"""Tasks that a queue outside was given. Functions over a Transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..hand_out import HandOut
from ..lifecycle import State
from ..task import Task
from . import claims, rows
from .rows import by_name
from .transaction import Transaction


def begin(
    tx: Transaction,
    engine: str,
    queues: Sequence[str],
    task_ids: Sequence[str] | None,
    but_not: Collection[str],
    limit: int,
) -> list[Task]:
    claims.make_ready(tx, tx.one("next_ready_at"))
    most = limit + len(but_not)
    looks = [
        tx.ask("to_hand_out", queue=queue, task_id=task_id, limit=most, now=tx.now)
        for queue in queues
        for task_id in ([None] if task_ids is None else task_ids)
    ]
    ready = [row["task_id"] for look in looks for row in look.fetchall()]
    found = [task_id for task_id in ready if task_id not in but_not][:limit]
    begins = [tx.ask("begin_hand_out", task_id=task_id, engine=engine, now=tx.now) for task_id in found]
    begun = [row["task_id"] for begin in begins if (row := begin.fetchone()) is not None]
    asked = [tx.ask("get_task", task_id=task_id) for task_id in begun]
    return [rows.task(row) for answer in asked if (row := answer.fetchone()) is not None]


def handed_out(tx: Transaction, jobs: Mapping[str, str]) -> None:
    tx.many("handed_out", [{"task_id": task_id, "job": job} for task_id, job in jobs.items()])


def not_handed_out(tx: Transaction, task_ids: Sequence[str], problem: str, again_in_ms: int) -> None:
    again_at = tx.now + again_in_ms
    tx.many(
        "not_handed_out",
        [{"task_id": task_id, "problem": problem, "again_at": again_at} for task_id in task_ids],
    )
    tx.topics.update(f"task:{task_id}" for task_id in task_ids)


def of(tx: Transaction, engine: str) -> list[HandOut]:
    return [
        HandOut(**{**by_name(row), "state": State(row["state"]), "waits": bool(row["waits"])})
        for row in tx.all("hand_outs", engine=engine)
    ]


def take_back(tx: Transaction, task_ids: Sequence[str], ended: bool) -> None:
    tx.many("take_back", [{"task_id": each, "ended": int(ended), "now": tx.now} for each in task_ids])
    tx.many("forget_hand_out", [{"task_id": each} for each in task_ids])
