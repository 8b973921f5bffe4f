"""run_parameter_sweep: many geometry optimizations, each a task of its own.

The points are child tasks and not calls, so each has its own retries, limits, logs, artifacts and
place in the queue, and they run on as many workers as the queue has. The sweep submits them to the
store of its own task, under keys that are made from its id: a sweep that is killed finds its
children again and submits none twice. It waits in another queue than they do, so that it never
takes the worker that they need.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backburner.app import Backburner
from backburner.context import TaskContext
from backburner.errors import ConfigError, TaskNotFound
from backburner.service import TaskService
from backburner.stores import open_store
from backburner.task import Task

_MAX_POINTS = 1_000
_LOOK_EVERY_S = 0.5


def sweep(
    app: Backburner, tool: str, fixed: dict[str, Any], grid: dict[str, list[Any]], ctx: TaskContext
) -> dict[str, Any]:
    """Run `tool` at each point of the grid, as child tasks, and compare what came of them."""
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not 1 <= len(points) <= _MAX_POINTS:
        raise ValueError(f"A sweep has from 1 to {_MAX_POINTS} points, not {len(points)}.")
    with _service(app, ctx) as service:
        children = [
            service.submit(
                tool,
                {**fixed, **point},
                owner=ctx.owner,
                parent_id=ctx.task_id,
                idempotency_key=f"{ctx.task_id}:{number}",
                tags=ctx.tags,
            ).task_id
            for number, point in enumerate(points)
        ]
        tasks = _wait_for_all(service, children, ctx)
    table = [_row(point, task) for point, task in zip(points, tasks, strict=True)]
    ctx.artifact(_csv(table).encode(), "sweep.csv", kind="table")
    succeeded = [row for row in table if row["energy_ev"] is not None]
    return {
        "n_points": len(points),
        "n_succeeded": len(succeeded),
        "best": min(succeeded, key=lambda row: row["energy_ev"], default=None),
        "points": table,
    }


@contextmanager
def _service(app: Backburner, ctx: TaskContext) -> Iterator[TaskService]:
    """The rules over the store that the sweep's own task is in."""
    store = open_store(app.settings.store, synchronous=app.settings.sqlite.synchronous)
    try:
        try:
            own = store.get(ctx.task_id, ctx.owner)
        except TaskNotFound:
            reason = "a sweep needs a store that its runner can open too: a file, or PostgreSQL"
            raise ConfigError(setting="store", reason=reason) from None
        service = TaskService(store, app.tools, app.settings, target=own.target)
        try:
            yield service
        finally:
            service.close()
    finally:
        store.close()


def _wait_for_all(service: TaskService, children: list[str], ctx: TaskContext) -> list[Task]:
    """The children when all are finished. When the sweep is cancelled, so are they."""
    tasks: list[Task] = []
    try:
        for done, child in enumerate(children):
            ctx.progress(done, len(children), phase="sweep", message=f"{done} of {len(children)} points done")
            while not (task := service.wait(child, _LOOK_EVERY_S, owner=ctx.owner).task).finished:
                ctx.raise_if_cancelled()
            tasks.append(task)
    finally:
        for child in children[len(tasks) :]:
            service.cancel(child, owner=ctx.owner, reason=f"its sweep {ctx.task_id} ended")
    return tasks


def _row(point: dict[str, Any], task: Task) -> dict[str, Any]:
    result = task.result if isinstance(task.result, dict) else {}
    return {
        **point,
        "task_id": task.task_id,
        "state": str(task.state),
        "energy_ev": result.get("energy_ev"),
        "n_steps": result.get("n_steps"),
        "error": task.error.message if task.error else None,
    }


def _csv(table: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, table[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()
