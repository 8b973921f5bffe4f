"""Following tasks as they change, without a thread and without polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..errors import StoreBusy, StoreUnavailable
from ..service import TaskService, TaskStatus

_TRY_AGAIN_S = 1.0


@asynccontextmanager
async def changes_of(service: TaskService, task_ids: Sequence[str]) -> AsyncIterator[asyncio.Event]:
    """An event that is set after each change of one of the tasks, and sometimes for nothing."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    def listen() -> list[Callable[[], None]]:
        return [service.changes.listen(f"task:{task_id}", wake) for task_id in task_ids]

    stops = await service.aio.run(listen)
    try:
        yield changed
    finally:
        for stop in stops:
            stop()


async def follow(
    service: TaskService, task_id: str, owner: str, *, with_logs: bool = False
) -> AsyncIterator[TaskStatus]:
    """The task's status now, and then after each change, until it is finished; that status is the last.

    `with_logs`: also when there may be nothing new but lines of its log.

    A slow reader misses what was in between, never the end. A store that is away for a while is
    waited for. Raises TaskNotFound.
    """
    async with changes_of(service, [task_id]) as changed:
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
