"""Fixtures for the tests of the packs: an app on a store of its own, with the real engine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner, Task
from tests import services
from tests.deployment import Deployment
from tests.integration.packs import app

Run = Callable[..., Any]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """The store, the data and the packs' databases are the test's own."""
    state = tmp_path / "state"
    with Deployment(state, variables={"XDG_STATE_HOME": str(state)}) as made:
        yield made


@pytest.fixture(scope="module")
def bb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backburner]:
    """An app with all packs for all tests of a file: each new supervisor would import ASE again."""
    state = tmp_path_factory.mktemp("packs")
    # A sweep that is cancelled has so long for its children.
    settings = {"supervisor__idle_exit_s": "0", "supervisor__cancel_grace_s": "20"}
    # Threads of linear algebra wait for each other by spinning, which on few cores takes most of the time.
    variables = {"XDG_STATE_HOME": str(state), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with Deployment(state, (), settings, variables) as deployment, deployment.app(app.make) as made:
        made.start()
        supervisor = deployment.supervisor()
        assert supervisor is not None
        services.running.add(supervisor.pid)
        yield made
    services.running.discard(supervisor.pid)


@pytest.fixture
def new(deployment: Deployment) -> Iterator[Backburner]:
    """An app with all packs that has not done anything yet."""
    with deployment.app(app.make) as made:
        yield made


@pytest.fixture
def run(bb: Backburner) -> Run:
    """Run a tool as a task and give its result; the test fails when the task does not succeed."""

    def run(tool: str, **inputs: Any) -> Any:
        task = finish(bb, bb.service.submit(tool, inputs).task_id)
        assert task.error is None, task.error
        return task.result

    return run


def finish(bb: Backburner, task_id: str, within_s: float = 60) -> Task:
    """The task when it is finished."""
    task = bb.service.wait(task_id, within_s).task
    assert task.finished, task
    return task


def artifact(bb: Backburner, task_id: str, name: str) -> bytes:
    """What is in an artifact of a task."""
    found = [one for one in bb.service.result(task_id).artifacts if one.name == name]
    assert found, f"there is no artifact {name}"
    return (bb.data_dir / "tasks" / found[-1].path).read_bytes()


def report(bb: Backburner, task_id: str) -> Any:
    return json.loads(artifact(bb, task_id, "report.json"))


def kill_runner(bb: Backburner, task_id: str) -> None:
    """Kill the process that runs the task, as a crash or the kernel would."""
    worker_id = bb.service.status(task_id).task.worker_id
    pids = [worker.pid for worker in bb.store.workers() if worker.worker_id == worker_id]
    attempt = bb.store.attempts(task_id)[-1]
    pid = attempt.pid or pids[0]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
