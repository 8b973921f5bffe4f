"""The Engine protocol: who starts the work. The store stays the truth; an engine only rings the bell."""

from __future__ import annotations

from typing import Protocol

from .task import Task


class Engine(Protocol):
    """Starts the work on tasks that the store has. Every verb may raise EngineError."""

    name: str

    def start(self) -> None:
        """Make sure that somebody will work; harmless when called again."""
        ...

    def submit(self, task: Task) -> None:
        """Say that a task is ready. The task is in the store already, so nothing is lost if this fails."""
        ...

    def stop(self) -> None:
        """Let go. Work that goes on elsewhere goes on."""
        ...
