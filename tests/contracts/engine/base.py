"""Fixtures and shortcuts of the engine contract: an app, and ways to run a tool and read its outcome."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from backburner.app import Backburner
from backburner.core.lifecycle import State
from backburner.core.task import Event, Task
from backburner.service.tasks import TaskStatus

T = TypeVar("T")

PATIENCE_S = 30.0


class EngineTests:
    """Base of the suite's parts."""

    @pytest.fixture(scope="class")
    @classmethod
    def app(cls) -> Iterator[Backburner]:
        raise NotImplementedError("a subclass makes a contract_app that is started, and ends what it started")

    @pytest.fixture
    def work(self, app: Backburner) -> Work:
        return Work(app)


class Work:
    """Short ways through a service, for tests."""

    def __init__(self, app: Backburner) -> None:
        self.app = app
        self.service = app.service
        self.store = app.store

    def submit(self, tool: str, /, options: dict[str, Any] | None = None, **inputs: Any) -> str:
        return self.service.submit(tool, inputs, **(options or {})).task_id

    def run(self, tool: str, /, options: dict[str, Any] | None = None, **inputs: Any) -> Task:
        """Submit and wait for the end."""
        return self.end(self.submit(tool, options, **inputs))

    def end(self, task_id: str) -> Task:
        """The task when it is finished."""
        return self.until(task_id, lambda task: task.finished).task

    def until(self, task_id: str, condition: Callable[[Task], bool]) -> TaskStatus:
        owner = self.store.head(task_id).owner
        status = self.service.wait(task_id, PATIENCE_S, owner=owner, until=condition)
        assert condition(status.task), f"still {status.task.state} after {PATIENCE_S:g} s: {status.task}"
        return status

    def until_state(self, task_id: str, state: State) -> TaskStatus:
        return self.until(task_id, lambda task: task.state is state or task.finished)

    def until_log(self, task_id: str, line: str) -> None:
        """Wait until the task has logged that line."""
        eventually(lambda: line in self.lines(task_id))

    def lines(self, task_id: str) -> list[str]:
        return [line.message for line in self.store.logs(task_id, 0, 1_000_000)]

    def trail(self, task_id: str) -> list[str]:
        """The signals of the task's events, in order."""
        return [event.signal for event in self.store.events(task_id)]

    def events(self, task_id: str) -> list[Event]:
        return self.store.events(task_id)


def eventually(condition: Callable[[], T | None], *, within_s: float = PATIENCE_S) -> T:
    """The first true value of `condition`, which must come within that time."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"this did not become true within {within_s:g} s"
        time.sleep(0.01)
    return value


def is_alive(pid: int) -> bool:
    """Whether there is such a process; one that only waits to be buried does not count."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()[0] not in "ZX"
    return False
