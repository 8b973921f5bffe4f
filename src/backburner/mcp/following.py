"""Following a task as it changes, without a thread and without polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ..errors import StoreBusy, StoreUnavailable
from ..service import TaskService, TaskStatus

_TRY_AGAIN_S = 1.0


async def follow(
    service: TaskService, task_id: str, owner: str, *, with_logs: bool = False
) -> AsyncIterator[TaskStatus]:
    """The task's status now, and then after each change, until it is finished; that status is the last.

    `with_logs`: also when there may be nothing new but lines of its log.

    A slow reader misses what was in between, never the end. A store that is away for a while is
    waited for. Raises TaskNotFound.
    """
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    stop = await service.aio.run(service.changes.listen, f"task:{task_id}", wake)
    try:
        seen: Any = None
        while True:
            changed.clear()
            try:
                status = await service.aio.status(task_id, owner=owner)
            except (StoreUnavailable, StoreBusy):
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            task = status.task
            now = (task.state, task.attempt, task.updated_at, task.progress, len(status.questions))
            if now != seen or with_logs:
                seen = now
                yield status
            if task.finished:
                return
            await changed.wait()
    finally:
        stop()
