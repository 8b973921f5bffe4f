"""Fixtures and shortcuts of the store contract: a store, a fake clock, and tasks in any state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from backburner.core import json_text
from backburner.core.reports import Asked, Registered, Started
from backburner.core.retry import Retry
from backburner.core.task import Artifact, InputRequest, NewTask, Submission, TaskError, new_task_id
from backburner.core.times import Clock
from backburner.store import open_store
from backburner.store.protocol import Lease, Store
from backburner.testing import FakeClock

QUEUE = "cpu_standard"
CRASH = TaskError("tool_error", "It broke.", exception="RuntimeError")
LOST = TaskError("worker_lost", "Its worker went away.")
OVER = TaskError("timed_out", "Its time was over.")
STOPPED = TaskError("cancelled", "It was stopped.")
TWICE_MORE = Retry(max_attempts=3, backoff_s=10.0, on=("*",))


class StoreTests:
    """Base of the suite's parts."""

    @pytest.fixture
    def store_url(self) -> str:
        raise NotImplementedError("a subclass says where an empty store is")

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def store(self, store_url: str, clock: FakeClock) -> Iterator[Store]:
        store = open_store(store_url, clock=clock)
        yield store
        store.close()

    @pytest.fixture
    def work(self, store: Store, clock: FakeClock) -> Work:
        return Work(store, clock)


def new_task(clock: Clock, inputs: Any = None, **given: Any) -> NewTask:
    """A task to submit; what is not given is plain."""
    now = clock.now_ms()
    text = json_text.encode(inputs or {})
    plain: dict[str, Any] = {
        "task_id": new_task_id(now),
        "owner": "ann",
        "tool_name": "relax",
        "inputs_json": text,
        "inputs_hash": hashlib.sha256(text.encode()).hexdigest(),
        "queue": QUEUE,
        "submitted_at": now,
    }
    return NewTask(**{**plain, **given})


class Work:
    """Short ways through a store's verbs, for tests."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock

    def submit(self, inputs: Any = None, *, queue_cap: int | None = None, **given: Any) -> Submission:
        return self.store.submit(new_task(self.clock, inputs, **given), queue_cap=queue_cap)

    def queued(self, inputs: Any = None, **given: Any) -> str:
        return self.submit(inputs, **given).task.task_id

    def claimed(self, inputs: Any = None, *, worker: str = "w1", **given: Any) -> Lease:
        return self.claim(self.queued(inputs, **given), worker)

    def claim(self, task_id: str, worker: str = "w1") -> Lease:
        lease = self.store.claim_task(task_id, worker)
        assert lease is not None, f"{task_id} could not be claimed"
        return lease

    def started(self, inputs: Any = None, **given: Any) -> Lease:
        return self.start(self.claimed(inputs, **given))

    def start(self, lease: Lease) -> Lease:
        self.store.report(lease, Started(pid=7))
        return lease

    def asking(self, *keys: str, **given: Any) -> Lease:
        lease = self.started(**given)
        self.store.report(lease, Asked(tuple(self.question(lease, key) for key in keys or ("colour",))))
        return lease

    def question(self, lease: Lease, key: str) -> InputRequest:
        params = {"message": f"Which {key}?"}
        return InputRequest(
            lease.task_id, key, lease.attempt, "elicitation/create", params, asked_at=self.clock.now_ms()
        )

    def artifact(self, lease: Lease, name: str = "out.txt") -> Registered:
        return Registered(
            Artifact(
                artifact_id=f"art_{lease.task_id}_{lease.attempt}_{name}",
                task_id=lease.task_id,
                attempt=lease.attempt,
                name=name,
                kind="file",
                size_bytes=3,
                sha256="0" * 64,
                path=f"{lease.task_id}/{name}",
                created_at=self.clock.now_ms(),
            )
        )

    def state(self, task_id: str) -> str:
        return self.store.get(task_id).state

    def signals(self, task_id: str) -> list[str]:
        return [event.signal for event in self.store.events(task_id)]

    def everything(self, *task_ids: str) -> dict[str, Any]:
        """All that the store tells about these tasks and about itself, to compare before and after."""
        store = self.store
        about_tasks = {
            task_id: (
                store.get(task_id),
                store.events(task_id),
                store.attempts(task_id),
                store.logs(task_id, limit=10_000),
                store.artifacts(task_id),
                store.input_requests(task_id),
            )
            for task_id in task_ids
        }
        about_itself = (store.queue_depths(), store.count_states(), store.workers(), store.runtimes("relax"))
        return {**about_tasks, "store": about_itself}
