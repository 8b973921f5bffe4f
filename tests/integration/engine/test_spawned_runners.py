"""Apps that cannot be forked: each runner imports them itself, and who starts threads too early is told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.tools.targets import load
from tests.contracts.engine.base import eventually
from tests.integration.engine.local import Local, running
from tests.integration.engine.test_local_apps import write

pytestmark = pytest.mark.slow

HEAD = """
import os, queue, threading
from backburner import Backburner, TaskContext

bb = Backburner("lab", store="sqlite://")
PID = os.getpid()
asked, answered = queue.Queue(), queue.Queue()


def serve_for_ever():
    while True:
        answered.put(asked.get() * 2)


threading.Thread(target=serve_for_ever, name="doubling", daemon=True).start()


def double(n: int) -> list[int]:
    asked.put(n)
    return [answered.get(timeout=20), PID, os.getpid()]


"""
SPAWNED = HEAD + "bb.tool(isolation='spawn')(double)\n"
FORKED = HEAD + "@bb.tool\ndef look() -> int:\n    return PID\n"
BOTH = FORKED + "bb.tool(isolation='spawn')(double)\n"

Start = Callable[..., Local]


@pytest.fixture
def start(tmp_path: Path, run_directory: str) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def begin(text: str, **settings: Any) -> Local:
            file = tmp_path / "lab.py"
            file.write_text(text)
            target = f"file:{file}#lab"
            specs = load(target).tools
            app = Backburner("lab", **{"store": f"sqlite:///{tmp_path}/tasks.db", **settings})
            for spec in specs:
                app.add_tool(spec)
            app.target = target
            return stack.enter_context(running(app))

        yield begin


def logged(local: Local, task_id: str) -> str:
    return "\n".join(local.lines(task_id))


def test_a_spawned_tool_finds_the_threads_of_the_app_alive_and_keeps_its_process(start: Start) -> None:
    local = start(SPAWNED, queues={"cpu_standard": 1})
    (doubled, importer, runner), again = local.run("double", n=4).result, local.run("double", n=5).result
    assert doubled == 8
    assert importer == runner, "the runner has imported the app itself"
    assert again == [10, importer, runner]


def test_a_whole_app_can_be_spawned_by_a_setting(start: Start) -> None:
    local = start(HEAD + "bb.tool(double)\n", isolation={"runners": "spawn"})
    assert local.run("double", n=1).result[0] == 2


def test_a_thread_that_the_import_leaves_is_named_in_the_log_of_the_task(start: Start) -> None:
    local = start(BOTH, queues={"cpu_standard": 1})
    task_id = local.submit("look")
    assert local.end(task_id).state is State.SUCCEEDED
    assert "'doubling'" in logged(local, task_id)
    assert 'isolation="spawn"' in logged(local, task_id)
    second = local.submit("look")
    local.end(second)
    assert "doubling" not in logged(local, second), "it is told once for each runner"
    assert "'doubling'" in (local.app.data_dir / "supervisor.log").read_text()
    spawned = local.submit("double", n=3)
    assert local.end(spawned).result[0] == 6
    assert "doubling" not in logged(local, spawned)


def test_a_changed_app_is_picked_up_by_spawned_runners(start: Start, tmp_path: Path) -> None:
    (tmp_path / "factor.py").write_text("BY = 1\n")
    text = SPAWNED.replace("import os,", "import factor, os,").replace(
        "answered.get(", "factor.BY * answered.get("
    )
    local = start(text)
    assert local.run("double", n=1).result[0] == 2
    write(tmp_path / "factor.py", "BY = 10\n")
    eventually(lambda: local.run("double", n=1).result[0] == 20)


@pytest.mark.whole
def test_an_app_that_does_not_load_in_its_runner_fails_the_task_and_the_next_version_works(
    start: Start, tmp_path: Path
) -> None:
    local = start(SPAWNED)
    write(tmp_path / "lab.py", SPAWNED + "raise RuntimeError('not today')\n")
    for task in [local.run("double", n=1) for _ in range(3)]:
        assert task.error is not None
        assert (task.error.type, "not today" in task.error.message) == ("app_not_loaded", True)
    write(tmp_path / "lab.py", SPAWNED)
    assert local.run("double", n=1).result[0] == 2


@pytest.mark.whole
def test_an_import_that_hangs_in_its_runner_fails_the_task(start: Start, tmp_path: Path) -> None:
    local = start(SPAWNED, supervisor={"import_timeout_s": 3.0})
    write(tmp_path / "lab.py", "import time\ntime.sleep(600)\n")
    task = local.run("double", n=1)
    assert task.error is not None
    assert "import_timeout_s" in task.error.message


@pytest.mark.whole
def test_a_spawned_runner_that_imports_slowly_is_waited_for_and_can_be_cancelled(
    start: Start, tmp_path: Path
) -> None:
    local = start(SPAWNED, supervisor={"heartbeat_s": 0.1, "lease_grace_s": 0.5})
    wait = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
    write(tmp_path / "lab.py", wait + SPAWNED)
    cancelled, other = local.submit("double", n=1), local.submit("double", n=2)
    for task_id in (cancelled, other):
        local.until_state(task_id, State.SCHEDULED)
    local.service.cancel(cancelled)
    assert local.end(cancelled).state is State.CANCELLED
    (tmp_path / "go").touch()
    assert local.end(other).result[0] == 4
