"""A TaskService over each kind of store, with a clock that the tests move and a few tools."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backburner.core.reports import Outcome, Started
from backburner.service.tasks import TaskService
from backburner.settings import LimitSettings, Queue, RetentionSettings, Settings
from backburner.store import open_store
from backburner.store.protocol import Lease, Store
from backburner.testing import FakeClock
from backburner.tools.spec import Registry, ToolSpec, tool_from_function


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def fail_to_guess(inputs: Mapping[str, Any]) -> float:
    raise ValueError("no idea")


def nothing(inputs: Mapping[str, Any], context: object) -> None:
    """What the tools of these tests do: they are never run."""


@pytest.fixture
def tools() -> Registry:
    tools = Registry()
    tools.add(tool_from_function(add))
    tools.add(ToolSpec("any", nothing))
    tools.add(ToolSpec("short", nothing, ttl_s=5, queue="cpu_heavy", timeout_s=9))
    tools.add(ToolSpec("fixed", nothing, estimate=30.0))
    tools.add(ToolSpec("scaled", nothing, estimate=lambda inputs: inputs["steps"] * 2))
    tools.add(ToolSpec("unguessable", nothing, estimate=fail_to_guess))
    return tools


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.whole)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(store_url: str, clock: FakeClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    yield store
    store.close()


@pytest.fixture
def settings(store_url: str) -> Settings:
    settings = Settings(
        store=store_url,
        limits=LimitSettings(max_input_bytes=10_000),
        retention=RetentionSettings(max_ttl_s=1000.0, ttl_s=100.0),
    )
    return replace(settings, queues={**settings.queues, "tiny": Queue(workers=1, max_length=2)})


@pytest.fixture
def service(store: Store, tools: Registry, settings: Settings, clock: FakeClock) -> Iterator[TaskService]:
    service = TaskService(store, tools, settings, clock=clock, target="module:lab#lab")
    yield service
    service.close()


class Worker:
    """Stands in for an engine: claims what a test names and reports what it says."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def start(self, task_id: str) -> Lease:
        lease = self._store.claim_task(task_id, "w1")
        assert lease is not None
        self._store.report(lease, Started())
        return lease

    def finish(self, task_id: str, outcome: Outcome) -> None:
        self._store.report(self.start(task_id), outcome)


@pytest.fixture
def worker(store: Store) -> Worker:
    return Worker(store)
