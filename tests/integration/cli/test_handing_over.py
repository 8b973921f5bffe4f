"""One supervisor in the place of another, with a task under way: it is run once, and to its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from backburner import open_store
from backburner.engines.local import SupervisorLock
from tests import services
from tests.integration.cli.conftest import Gate, Lab, Worker


def holder(lab: Lab) -> psutil.Process:
    """The process that holds the supervisor's lock."""
    return psutil.Process(signature(lab)["pid"])


def signature(lab: Lab) -> dict[str, Any]:
    found = SupervisorLock(lab.folder / "lab.db.d").holder()
    assert found is not None
    return found


def trail(lab: Lab, task_id: str) -> list[str]:
    """What became of a task, step by step."""
    with contextlib.closing(open_store(lab.url)) as store:
        return [event.signal for event in store.events(task_id)]


class Detached:
    """A supervisor that was started by itself, with a task under way that waits for its gate."""

    def __init__(self, lab: Lab, **environment: str) -> None:
        self.gate: Gate = lab.gate()
        done = lab.run("call", "--detach", "relax", "structure=cu", str(self.gate), **environment)
        assert done.returncode == 0, done.stderr
        self.task_id = done.stdout.strip()
        lab.wait_for_state(self.task_id, "running")
        self.process = holder(lab)

    def close(self) -> None:
        self.gate.open()
        with contextlib.suppress(psutil.Error):
            self.process.wait(15)


@pytest.fixture
def detached(lab: Lab) -> Iterator[Detached]:
    with contextlib.closing(Detached(lab)) as started:
        yield started


@pytest.mark.slow
def test_a_worker_takes_over_from_a_supervisor_that_started_by_itself(lab: Lab, detached: Detached) -> None:
    with contextlib.closing(Worker(lab)) as worker:
        assert holder(lab).pid == worker.process.pid
        other = lab.submit("add", a=1)
        lab.wait_for_state(other, "succeeded")
        assert lab.task(detached.task_id).state == "running"
        detached.gate.open()
        lab.wait_for_state(detached.task_id, "succeeded")
        assert trail(lab, detached.task_id) == ["submit", "claim", "start", "succeed"]
        assert services.ended(detached.process)
        assert not list((lab.folder / "lab.db.d").glob("retired-*"))


@pytest.mark.whole
@pytest.mark.slow
def test_a_task_of_one_that_retired_and_died_is_run_again(lab: Lab, detached: Detached) -> None:
    with contextlib.closing(Worker(lab)):
        os.kill(detached.process.pid, signal.SIGKILL)
        detached.gate.open()
        lab.wait_for_state(detached.task_id, "succeeded")
        assert lab.task(detached.task_id).attempt == 2


@pytest.mark.whole
@pytest.mark.slow
def test_a_task_that_waits_for_an_answer_gets_it_from_one_that_retired(lab: Lab, detached: Detached) -> None:
    asking = lab.run("call", "--detach", "ask").stdout.strip()
    lab.wait_for_state(asking, "input_required")
    with contextlib.closing(Worker(lab)):
        assert lab.run("answer", asking, "element=cu").returncode == 0
        lab.wait_for_state(asking, "succeeded")
        assert lab.task(asking).attempt == 1


@pytest.mark.whole
@pytest.mark.slow
def test_a_worker_leaves_room_for_what_the_other_still_runs(lab: Lab, detached: Detached) -> None:
    with contextlib.closing(Worker(lab, "--queue", "cpu_standard=1", "--queue", "cpu_small=1")):
        waiting = lab.submit("add", a=1)
        detached.gate.open()
        for task_id in (detached.task_id, waiting):
            lab.wait_for_state(task_id, "succeeded")
        first, second = lab.task(detached.task_id), lab.task(waiting)
        assert first.completed_at is not None
        assert second.started_at is not None
        assert second.started_at >= first.completed_at


@pytest.mark.whole
@pytest.mark.slow
def test_a_supervisor_of_a_release_that_knew_no_hand_over_is_let_finish(lab: Lab, detached: Detached) -> None:
    lock = lab.folder / "lab.db.d" / "supervisor.lock"
    said_then = ("place", "pid", "started", "supervisor_id")
    lock.write_text(json.dumps({name: signature(lab)[name] for name in said_then}))
    starting = lab.start("worker", "lab.py", "--idle-exit", "100ms")
    assert starting.stderr is not None
    assert "cannot hand over" in starting.stderr.readline()
    detached.gate.open()
    _, said = starting.communicate(timeout=40)
    assert (starting.returncode, f"takes over from pid {detached.process.pid}" in said) == (0, True)
    assert trail(lab, detached.task_id) == ["submit", "claim", "start", "succeed"]


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.0.1", "999.0"])
def test_a_supervisor_of_an_older_version_hands_over_to_a_server(
    lab: Lab, tmp_path: Path, version: str
) -> None:
    lab.have_supervisors_stay()
    patch = tmp_path / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(
        f"import backburner.version\nbackburner.version.VERSION = {version!r}\n"
    )
    other = Detached(lab, PYTHONPATH=str(patch))
    try:
        assert signature(lab)["version"] == version
        quick = lab.run("call", "add", "a=1")
        assert quick.stdout.strip() == "3"
        stays = version == "999.0"
        assert (holder(lab).pid == other.process.pid) == stays
        assert lab.task(other.task_id).state == "running"
        other.gate.open()
        lab.wait_for_state(other.task_id, "succeeded")
        assert lab.task(other.task_id).attempt == 1
    finally:
        other.gate.open()
        lab.run("supervisor", "stop")
        assert services.wait_until(lambda: SupervisorLock(lab.folder / "lab.db.d").holder() is None)
