"""Somebody sets the wall clock of a host: nothing ends early for it, and nothing lives for ever."""

from pathlib import Path
from typing import Any

import pytest

from backburner.core.lifecycle import State
from backburner.core.task import Resources
from tests.contracts.engine.base import eventually
from tests.integration.engine.conftest import StartLocal
from tests.integration.engine.local import Local
from tests.services import WallClock

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The settings that say where the tasks are."""
    if request.param == "sqlite":
        return {}
    return {"store": request.getfixturevalue("postgres_database"), "data_dir": str(tmp_path / "data")}


@pytest.fixture
def local(
    where: dict[str, str], start_local: StartLocal, wall_clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> Local:
    """A supervisor and its runners on a host whose clock the test sets; the test itself is elsewhere."""
    supervisor = {"heartbeat_s": 0.2, "lease_grace_s": 10, "keeper_interval_s": 0.2}
    with monkeypatch.context() as patch:
        wall_clock.show_to_children(patch)
        return start_local(supervisor=supervisor, queues={"cpu_standard": 4}, **where)


def limited(local: Local, tool: str, limit_s: float, /, **inputs: Any) -> str:
    task_id = local.submit(tool, {"resources": Resources(max_runtime_s=limit_s)}, **inputs)
    local.until_state(task_id, State.RUNNING)
    return task_id


def next_heartbeat(local: Local, task_id: str) -> None:
    before = local.store.get(task_id).heartbeat_at
    eventually(lambda: local.store.get(task_id).heartbeat_at != before)


@pytest.mark.whole
@pytest.mark.parametrize("hours", [2, -2])
def test_setting_the_clock_by_hours_neither_ends_nor_keeps_anything(
    local: Local, wall_clock: WallClock, tmp_path: Path, hours: float
) -> None:
    finished = local.run("add", a=1)
    supervisor = local.supervisor()
    running = limited(local, "run_until", 600, folder=str(tmp_path))
    overdue = limited(local, "stay", 6, seconds=600)
    waiting = local.submit("succeed_later")
    local.until(waiting, lambda task: task.failures == 1)

    wall_clock.set(hours)
    for _ in range(10):
        next_heartbeat(local, running)
    assert local.run("add", a=1).result == {"sum": 3}
    assert local.end(waiting).result == 2
    assert local.end(overdue).state is State.TIMED_OUT
    (tmp_path / "go").touch()
    assert local.end(running).result == 1
    assert local.trail(running) == ["submit", "claim", "start", "succeed"]
    assert local.supervisor() == supervisor

    kept = local.store.get(finished.task_id)
    assert kept.state is State.SUCCEEDED
    assert kept.expires_at is not None
    assert finished.expires_at is not None
    moved_ms = 0 if local.store.shared else hours * 3_600_000
    assert abs(kept.expires_at - finished.expires_at - moved_ms) < 5_000
