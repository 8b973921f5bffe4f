"""The life of a server in a runner: one event loop for all its tasks, with its lifespan open on it."""

from __future__ import annotations

import asyncio
import threading
import traceback
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import Context, ContextVar, copy_context
from typing import Any

#: What a server lives in.
Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

_OF_A_TASK: ContextVar[bool] = ContextVar("backburner_of_a_task", default=False)


class Life:
    """A lifespan that is open. It is begun, used and ended on one thread.

    What the coroutine of one task leaves behind does not go on in the next; what the lifespan has begun does.
    """

    def __init__(self, lifespan: Lifespan, context: Context) -> None:
        """Enter the lifespan, in a copy of the context. Raises what it raises."""
        self._left_by_tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._loop = loop = asyncio.new_event_loop()
        self._executor = _Executor()
        loop.set_default_executor(self._executor)
        loop.set_task_factory(self._new_task)
        self._is_to_end = asyncio.Event()
        entered: asyncio.Future[Context] = loop.create_future()
        self._living = loop.create_task(self._live(lifespan, entered), context=context.copy())
        try:
            self._context = loop.run_until_complete(entered)
        except BaseException:
            self._close()
            raise

    @property
    def is_over(self) -> bool:
        """Also when the lifespan has ended by itself, as by an error in what it began."""
        return self._living.done()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a task's coroutine in a context like that in which a server runs its requests."""
        context, loop, executor = self._context.copy(), self._loop, _Executor()
        context.run(_OF_A_TASK.set, True)
        loop.set_default_executor(executor)
        try:
            return loop.run_until_complete(loop.create_task(coroutine, context=context))
        finally:
            loop.run_until_complete(self._tidy(executor))
            loop.set_default_executor(self._executor)

    def go_on_until_readable(self, file: Any) -> None:
        """Let what the lifespan began go on while there is no task, until something can be read."""
        ready = asyncio.Event()
        self._loop.add_reader(file, ready.set)
        try:
            self._loop.run_until_complete(ready.wait())
        finally:
            self._loop.remove_reader(file)

    def end(self, within_s: float) -> None:
        """Leave the lifespan; what it does not manage within this time is cut off."""
        self._is_to_end.set()
        self._loop.run_until_complete(asyncio.wait([self._living], timeout=within_s))
        if self._living.done() and not self._living.cancelled() and (error := self._living.exception()):
            traceback.print_exception(error)
        self._close()

    async def _live(self, lifespan: Lifespan, entered: asyncio.Future[Context]) -> None:
        try:
            async with lifespan():
                entered.set_result(copy_context())
                await self._is_to_end.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    def _new_task(self, loop: Any, coroutine: Any, **options: Any) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        if _OF_A_TASK.get() if context is None else context.get(_OF_A_TASK):
            self._left_by_tasks.add(task)
        return task

    async def _tidy(self, executor: _Executor) -> None:
        """End what a task left behind, as `asyncio.run` does."""
        left = [task for task in self._left_by_tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if executor.used:
            await executor.end()

    def _close(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._loop.close()


class _Executor(ThreadPoolExecutor):
    """The threads behind `asyncio.to_thread`."""

    used = False

    def submit(self, *call: Any, **arguments: Any) -> Any:
        self.used = True
        return super().submit(*call, **arguments)

    async def end(self) -> None:
        """Wait for its threads, without holding up the loop that they may wait for."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def wait() -> None:
            self.shutdown()
            loop.call_soon_threadsafe(over.set_result, None)

        waiting = threading.Thread(target=wait)
        waiting.start()
        await over
        waiting.join()
