"""TaskService for asyncio: the same implementation, off the event loop, but for short reads."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from ..core.requests import TaskRequest, deadline
from ..core.task import LOCAL_OWNER, NewTask, Task, TaskHead, TaskOptions

if TYPE_CHECKING:
    from .cursors import TaskPage
    from .tasks import LogPage, TaskResult, TaskService, TaskStatus


P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 16
#: So many values, or a hundred characters for each of them, are few.
_SMALL, _CHARS = 200, 100
#: A read of a store on this host takes a fraction of a millisecond, unless it must wait for a disk.
_LONG_S = 0.02
_WARY_S = 30.0


class AsyncTaskService:
    """`await`able forms of the TaskService methods. Waiting costs no thread."""

    def __init__(self, service: TaskService) -> None:
        self._service = service
        self._executor: ThreadPoolExecutor | None = None
        self._wary_until = 0.0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function of the service or its store on one of the service's threads, in the context
        of the caller."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="backburner-service")
        loop = asyncio.get_running_loop()
        call = partial(copy_context().run, function, *args, **kwargs)
        return await loop.run_in_executor(self._executor, call)

    async def look(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for a short read: of a store on this host it is done here and now, for that costs less.

        Not for a while after one that had to wait: a slow disk holds up who asks, and not the event loop.
        """
        began = time.monotonic()
        if self._service.store.shared or began < self._wary_until:
            return await self.run(function, *args, **kwargs)
        pauses = _pauses()
        try:
            return function(*args, **kwargs)
        finally:
            now = time.monotonic()
            if now - began > _LONG_S and _pauses() > pauses:
                self._wary_until = now + _WARY_S

    async def submit(
        self, tool_name: str, inputs: Mapping[str, Any], **options: Unpack[TaskOptions]
    ) -> TaskStatus:
        return await self.submit_request(TaskRequest(tool_name, inputs, **options))

    async def submit_request(self, request: TaskRequest) -> TaskStatus:
        """As TaskService.submit_request; where a supervisor lives, it takes no thread."""
        return await self.submit_new(await self.new_task(request))

    async def new_task(self, request: TaskRequest) -> NewTask:
        """The task that is asked for, checked and not kept yet. Raises InvalidRequest, and its kinds."""
        make = self.look if _is_small(request.inputs) else self.run
        return await make(self._service.admission.new_task, request)

    async def submit_new(self, new: NewTask) -> TaskStatus:
        """As TaskService.submit_new."""
        status = await self._service.submit_new_async(new)
        return await self.run(self._service.submit_new, new) if status is None else status

    async def status(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskStatus:
        return await self.look(self._service.status, task_id, owner=owner)

    async def head(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskHead:
        return await self.look(self._service.head, task_id, owner=owner)

    async def find(self, external_id: str, *, owner: str = LOCAL_OWNER) -> TaskStatus | None:
        return await self.run(self._service.find, external_id, owner=owner)

    async def list(self, *, owner: str | None = LOCAL_OWNER, **filters: Any) -> TaskPage:
        return await self.run(self._service.list, owner=owner, **filters)

    async def logs(
        self, task_id: str, *, owner: str | None = LOCAL_OWNER, cursor: str | None = None, limit: int = 200
    ) -> LogPage:
        return await self.run(self._service.logs, task_id, owner=owner, cursor=cursor, limit=limit)

    async def result(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskResult:
        return await self.run(self._service.result, task_id, owner=owner)

    async def cancel(
        self, task_id: str, *, owner: str | None = LOCAL_OWNER, reason: str | None = None
    ) -> TaskStatus:
        return await self.run(self._service.cancel, task_id, owner=owner, reason=reason)

    async def retry(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> TaskStatus:
        return await self.run(self._service.retry, task_id, owner=owner)

    async def delete(self, task_id: str, *, owner: str | None = LOCAL_OWNER) -> None:
        await self.run(self._service.delete, task_id, owner=owner)

    async def answer_input(
        self, task_id: str, answers: Mapping[str, Mapping[str, Any]], *, owner: str | None = LOCAL_OWNER
    ) -> TaskStatus:
        return await self.run(self._service.answer_input, task_id, answers, owner=owner)

    async def wait(
        self,
        task_id: str,
        timeout_s: float,
        *,
        owner: str | None = LOCAL_OWNER,
        until: Callable[[Task], bool] = lambda task: task.finished,
    ) -> TaskStatus:
        """As TaskService.wait; cancelling the wait leaves the task alone."""
        end = deadline(timeout_s)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        stop = await self.look(self._service.changes.listen, f"task:{task_id}", wake)
        try:
            while True:
                changed.clear()
                status = await self.status(task_id, owner=owner)
                left = end - time.monotonic()
                if until(status.task) or left <= 0:
                    return status
                try:
                    await asyncio.wait_for(changed.wait(), left)
                except TimeoutError:
                    continue
        finally:
            stop()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False)


def _is_small(inputs: object) -> bool:
    """Return whether checking the inputs costs less than a switch to another thread."""
    left, unseen = _SMALL, [inputs]
    while unseen and left > 0:
        value = unseen.pop()
        if isinstance(value, Mapping):
            unseen.extend(value.values())
            left -= 1 + len(value)
        elif isinstance(value, list | tuple):
            left -= 1 + len(value)
            unseen.extend(value[:left] if left > 0 else ())
        elif isinstance(value, str):
            left -= 1 + len(value) // _CHARS
    return left > 0


def _pauses() -> int:
    """Count the voluntary waits of this thread; losing the processor to others does not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
