"""How runners come by an app: files that change, apps that do not load, runners that do not get ready."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.core.task import Task
from backburner.errors import EngineError
from backburner.tools.targets import load
from tests.contracts.engine.base import eventually
from tests.integration.engine.local import Local, running
from tests.integration.engine.test_local_fencing import stopped_between_writes

pytestmark = pytest.mark.slow

StartApp = Callable[..., Local]

HEAD = "from backburner import Backburner\nbb = Backburner('lab', store='sqlite://')\n"
ANSWER = HEAD + "@bb.tool(retries=0)\ndef answer() -> {0}:\n    return {1}\n"
WAIT_FOR = "import os, time\ndef wait_for(file):\n    while not os.path.exists(file): time.sleep(0.01)\n"
THREAD = "threading.Thread(target=time.sleep, args=(600,))"
APP = "carrying_app.py:bb"
VERSION_1 = ANSWER.format("int", 1)
VERSION_2 = ANSWER.format("int", 2)


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    folder = tmp_path / "apps"
    folder.mkdir()
    return folder / "lab.py"


@pytest.fixture
def start_app(tmp_path: Path, app_file: Path, run_directory: str) -> Iterator[StartApp]:
    """Start a server whose tool `answer` is in the app file, whatever is there now."""
    with contextlib.ExitStack() as stack:

        def start(text: str, **settings: Any) -> Local:
            app_file.write_text(text)
            given = {"store": f"sqlite:///{tmp_path}/tasks.db", **settings}
            app = Backburner("lab", **given)
            app.tool(retries=0)(answer)
            app.target = f"file:{app_file}#lab"
            return stack.enter_context(running(app))

        yield start


def answer() -> int:
    raise AssertionError("a tool runs in a runner, and not in its server")


def write(file: Path, text: str) -> None:
    """Change a file as an editor does; never within the resolution of its time in bytecode, a second."""
    before = file.stat().st_mtime_ns
    file.write_text(text)
    os.utime(file, ns=(before + 1_000_000_000, before + 1_000_000_000))


def succeeds_with(local: Local, result: object) -> Callable[[], bool]:
    return lambda: local.run("answer").result == result


def error_of(task: Task) -> str:
    assert task.state is State.FAILED
    assert task.error is not None
    assert task.error.type == "app_not_loaded", task.error
    return f"{task.error.message}\n{task.error.details}"


def test_a_changed_app_is_picked_up(start_app: StartApp, app_file: Path) -> None:
    local = start_app(VERSION_1)
    assert local.run("answer").result == 1
    write(app_file, VERSION_2)
    eventually(succeeds_with(local, 2))


def test_a_changed_module_of_the_app_is_picked_up(start_app: StartApp, app_file: Path) -> None:
    part = app_file.with_name("part.py")
    part.write_text("VALUE = 1\n")
    local = start_app("import part\n" + ANSWER.format("int", "part.VALUE"))
    assert local.run("answer").result == 1
    write(part, "VALUE = 2\n")
    eventually(succeeds_with(local, 2))


@pytest.mark.whole
def test_a_task_under_way_is_not_disturbed_by_a_change(
    start_app: StartApp, app_file: Path, tmp_path: Path
) -> None:
    tool = f"@bb.tool\ndef answer() -> int:\n    wait_for({str(tmp_path / 'go')!r})\n    return 1\n"
    local = start_app(HEAD + WAIT_FOR + tool)
    old = local.submit("answer")
    local.until_state(old, State.RUNNING)
    write(app_file, VERSION_2)
    eventually(succeeds_with(local, 2))
    (tmp_path / "go").touch()
    assert local.end(old).result == 1


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("raise RuntimeError('x' * 1_000_000)\n", "RuntimeError: xxxx"),
        ("import sys; sys.exit('not today')\n", "not today"),
        ("value = 1\n", "0 apps named 'lab'"),
        (f"import threading, time\n{THREAD}.start()\n1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_an_app_that_does_not_load_fails_its_task_and_the_next_version_works(
    start_app: StartApp, app_file: Path, text: str, words: str
) -> None:
    local = start_app(text)
    tasks = [local.submit("answer") for _ in range(4)]
    for task_id in tasks:
        assert words in error_of(local.end(task_id))
    write(app_file, VERSION_1)
    eventually(succeeds_with(local, 1))


@pytest.mark.whole
def test_an_app_that_takes_its_process_down_is_tried_a_few_times_and_given_up(
    start_app: StartApp, app_file: Path
) -> None:
    local = start_app("import os; os._exit(3)\n")
    task = local.run("answer")
    assert task.state is State.FAILED
    assert task.error is not None
    assert task.error.type == "worker_lost"
    write(app_file, VERSION_1)
    eventually(succeeds_with(local, 1))


def test_an_app_that_is_slow_to_import_is_waited_for_and_can_be_cancelled(
    start_app: StartApp, app_file: Path, tmp_path: Path
) -> None:
    text = f"{WAIT_FOR}wait_for({str(tmp_path / 'go')!r})\n{VERSION_1}"
    local = start_app(text, supervisor={"heartbeat_s": 0.1, "lease_grace_s": 0.5})
    cancelled, other = local.submit("answer"), local.submit("answer")
    for task_id in (cancelled, other):
        local.until_state(task_id, State.SCHEDULED)
    local.service.cancel(cancelled)
    assert local.end(cancelled).state is State.CANCELLED
    (tmp_path / "go").touch()
    assert local.end(other).result == 1


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("then", ["pass", "sys.exit(3)", "raise RuntimeError"])
def test_an_app_that_forks_when_it_is_imported_is_imported_once(start_app: StartApp, then: str) -> None:
    local = start_app(f"import os, sys\nif os.fork() == 0: {then}\n" + VERSION_1)
    assert [local.run("answer").result for _ in range(5)] == [1] * 5


@pytest.mark.whole
def test_an_app_whose_import_hangs_fails_its_tasks_and_the_next_version_works(
    start_app: StartApp, app_file: Path
) -> None:
    text = "import time\ntime.sleep(600)\n" + VERSION_1
    local = start_app(text, supervisor={"import_timeout_s": 5.0})
    for task_id in [local.submit("answer") for _ in range(3)]:
        assert "import_timeout_s" in error_of(local.end(task_id))
    write(app_file, VERSION_2)
    eventually(succeeds_with(local, 2))


def test_an_app_that_is_mended_while_its_import_hangs_is_imported_anew(
    start_app: StartApp, app_file: Path
) -> None:
    local = start_app("import time\ntime.sleep(600)\n" + VERSION_1)
    task_id = local.submit("answer")
    local.until_state(task_id, State.SCHEDULED)
    write(app_file, VERSION_2)
    assert local.end(task_id).result == 2


@pytest.mark.whole
def test_a_runner_that_does_not_get_ready_is_replaced(start_app: StartApp, tmp_path: Path) -> None:
    marker = str(tmp_path / "hung")
    hang = (
        "import os, pathlib, time\n"
        "def hang():\n"
        f"    if not pathlib.Path({marker!r}).exists():\n"
        f"        pathlib.Path({marker!r}).touch(); time.sleep(600)\n"
        "os.register_at_fork(after_in_child=hang)\n"
    )
    local = start_app(hang + VERSION_1, supervisor={"heartbeat_s": 0.1, "lease_grace_s": 3.0})
    assert local.run("answer").result == 1
    assert Path(marker).exists()


def test_a_runner_that_speaks_before_its_process_is_known_waits_for_that(start_app: StartApp) -> None:
    late = "import os, time\nos.register_at_fork(after_in_parent=lambda: time.sleep(0.3))\n"
    local = start_app(late + ANSWER.format("int", "__import__('os').getpid()"))
    task = local.run("answer")
    assert [attempt.pid for attempt in local.store.attempts(task.task_id)] == [task.result]


@pytest.mark.whole
def test_a_cancel_before_the_runner_is_ready_does_not_stop_those_that_wait_behind(
    start_app: StartApp, tmp_path: Path
) -> None:
    shut = tmp_path / "shut"
    wait = f"lambda: [time.sleep(0.01) for _ in iter(lambda: os.path.exists({str(shut)!r}), False)]"
    text = f"import os, time\nos.register_at_fork(after_in_child={wait})\n"
    local = start_app(
        text + VERSION_1,
        supervisor={
            "max_tasks_per_runner": 20,
            "heartbeat_s": 100,
            "lease_grace_s": 300,
            "keeper_interval_s": 100,
        },
        queues={"cpu_standard": 1},
    )
    others = [local.submit("answer") for _ in range(4)]
    for _ in range(20):  # until tasks are quick enough for the worker to lease ahead
        for task_id in others:
            local.end(task_id)
        for _ in range(16):  # the last one takes the runner along
            local.run("answer")
        shut.touch()
        with stopped_between_writes(local.supervisor(), local):
            first, *others = [local.submit("answer") for _ in range(4)]
        local.until_state(first, State.SCHEDULED)
        if local.store.get(others[-1]).state is State.SCHEDULED:
            break
        shut.unlink()
        local.end(first)
    local.service.cancel(first)
    local.end(first)
    shut.unlink(missing_ok=True)
    assert [local.end(task_id).result for task_id in others] == [1] * 3


def test_runners_that_die_before_they_are_ready_are_not_tried_for_ever(start_app: StartApp) -> None:
    local = start_app("import os\nos.register_at_fork(after_in_child=lambda: os._exit(9))\n" + VERSION_1)
    task = local.run("answer")
    assert task.state is State.FAILED
    assert task.error is not None
    assert task.error.type == "worker_lost"


def test_a_runner_is_replaced_after_so_many_tasks(start_app: StartApp) -> None:
    local = start_app(
        "import os\n" + ANSWER.format("int", "os.getpid()"),
        supervisor={"max_tasks_per_runner": 3},
        queues={"cpu_standard": 1},
    )
    pids = [local.run("answer").result for _ in range(9)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]


def test_a_tool_s_children_see_the_server_s_own_python_path(
    start_app: StartApp, app_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an app finds what its server finds."""
    (app_file.parent / "extra").mkdir()
    (app_file.parent / "extra" / "only_here.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(str(app_file.parent / "extra"))
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    text = "import os, only_here\n" + ANSWER.format("list", "[only_here.VALUE, os.environ['PYTHONPATH']]")
    assert start_app(text).run("answer").result == [5, "/somewhere/else"]


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("there is no other file system to write to")
    folder = memory / f"backburner-{os.getpid()}"
    yield folder
    shutil.rmtree(folder)


def test_a_folder_on_another_file_system_and_with_a_very_long_name_will_do(
    folder_in_memory: Path, start_app: StartApp
) -> None:
    folder = folder_in_memory / "/".join(["d" * 200] * 8)
    text = (
        f"{HEAD}from backburner import TaskContext\n@bb.tool\ndef answer(ctx: TaskContext) -> str:\n"
        "    (ctx.scratch / 'x').write_text('data')\n    return ctx.artifact('x').path\n"
    )
    local = start_app(text, data_dir=str(folder))
    assert (folder / "tasks" / local.run("answer").result).read_text() == "data"


# -- starting ------------------------------------------------------------------------------------


def test_an_app_without_a_file_is_told_that_it_needs_one(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"Backburner": Backburner, "url": f"sqlite:///{tmp_path}/tasks.db"}
    exec("app = Backburner('lab', store=url)", namespace)
    app = namespace["app"]
    with pytest.raises(EngineError, match=r"put it into a \.py file"):
        app.start()
    app.close()


def test_a_supervisor_that_ends_at_once_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_directory: str
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho the machine is on fire >&2; exit 1\n")
    broken.chmod(0o700)
    app = Backburner("lab", store=f"sqlite:///{tmp_path}/tasks.db", target=APP)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(broken))
        with pytest.raises(EngineError, match="the machine is on fire"):
            app.start()
        app.close()


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    app = Backburner(
        "lab", store=f"sqlite:///{tmp_path}/tasks.db", target=APP, data_dir=str(tmp_path / "file/data")
    )
    with pytest.raises(EngineError, match="Not a directory"):
        app.start()
    app.close()


def test_a_temporary_store_takes_its_supervisor_along(app_file: Path, run_directory: str) -> None:
    app_file.write_text(HEAD + "import time\n@bb.tool\ndef answer() -> None:\n    time.sleep(600)\n")
    app = load(f"file:{app_file}#lab")
    app.target = f"file:{app_file}#lab"
    app.start()
    local = Local(app)
    local.until_state(local.submit("answer"), State.RUNNING)
    family, folder = local.family(), app.data_dir
    app.close()
    assert not [process for process in family if process.is_running()]
    assert not folder.exists()
