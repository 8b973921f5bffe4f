"""The Engine protocol: who starts the work. The store stays the truth; an engine only rings the bell."""

from __future__ import annotations

from typing import Protocol

from .submission import Submission
from .task import NewTask, Task


class Engine(Protocol):
    """Starts the work on tasks that the store has. Every verb may raise EngineError."""

    name: str

    def start(self) -> None:
        """Make sure that somebody will work; harmless when called again."""
        ...

    def keep(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        """Have a new task kept, as `Store.submit` would, by who will work on it; it is on disk then.

        None where that cannot be now. The caller then has the store keep it, under the same id: it may be
        there already.
        """
        ...

    async def keep_soon(self, new: NewTask, queue_cap: int | None) -> Submission | None:
        """As `keep`, for an event loop: it neither blocks nor takes a thread."""
        ...

    def submit(self, task: Task) -> None:
        """Say that a task is ready. The task is in the store already, so nothing is lost if this fails."""
        ...

    def stop(self) -> None:
        """Let go. Work that goes on elsewhere goes on."""
        ...
