"""The Engine protocol: starts the work on stored tasks. The store stays the single source of truth."""

from __future__ import annotations

from typing import Protocol

from ..core.task import NewTask, Submission, Task


class Engine(Protocol):
    """Starts the work on tasks. Every method may raise EngineError."""

    name: str

    def start(self) -> None:
        """Make sure that a worker will run tasks; harmless when called again."""
        ...

    def submit(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        """Store a new task, as `Store.submit` would, in the process that will run it. It is on disk then.

        Returns None if the engine declines. The caller then stores the task itself, under the same id, since
        it may be stored already.
        """
        ...

    async def submit_async(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        """As `submit`, without blocking the event loop or using a thread."""
        ...

    def notify(self, task: Task) -> None:
        """Announce a stored task that is ready to run. If this fails, the task is run later."""
        ...

    def stop(self) -> None:
        """Release resources. Tasks that run in other processes go on."""
        ...
