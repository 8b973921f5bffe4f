"""Runners that are forked for a burst, and leave when it is over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backburner.core.lifecycle import State
from tests.contracts.engine.base import eventually
from tests.integration.engine.conftest import StartLocal

pytestmark = pytest.mark.slow

STAY = max(4, os.cpu_count() or 1)


@pytest.mark.parametrize(("idle_exit_s", "left"), [(0.2, STAY), (0, STAY + 3)])
def test_runners_without_work_end_but_for_a_few(
    start_local: StartLocal, tmp_path: Path, idle_exit_s: float, left: int
) -> None:
    local = start_local(supervisor={"heartbeat_s": 0.1, "runner_idle_exit_s": idle_exit_s})
    burst = [local.submit("run_until", {"queue": "io"}, folder=str(tmp_path)) for _ in range(STAY + 3)]
    for task_id in burst:
        local.until_state(task_id, State.RUNNING)
    assert len(local.runners()) == len(burst)
    (tmp_path / "go").touch()
    assert {local.end(task_id).state for task_id in burst} == {State.SUCCEEDED}
    over_at = local.store.now_ms()
    eventually(lambda: max(each.last_heartbeat for each in local.store.workers()) > over_at + 600)
    eventually(lambda: len(local.runners()) == left)
    assert local.run("add_later", {"queue": "io"}, a=1, b=2).result == 3
    assert len(local.runners()) == left
