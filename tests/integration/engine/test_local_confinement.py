"""What the settings of `isolation` keep tools from, by a tool that tries; and no task runs without it."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.core.task import Task
from backburner.engines.local.isolation import confinement as landlock
from backburner.engines.local.isolation import network_missing
from backburner.errors import ConfigError, NotConfined
from tests.integration.engine import confined_app
from tests.integration.engine.local import Local, running

Start = Callable[..., Local]

FIRST, LAST = 61_000, 61_009
USERS = {"users": f"{FIRST}-{LAST}"}
FILES = {"files": "task"}
NO_NETWORK = {**USERS, "network": "none"}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can have runners of other users")
needs_landlock = pytest.mark.skipif(
    landlock.version() < landlock.OLDEST_VERSION, reason="this kernel has no Landlock, or too old a one"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users can pass through."""
    made = Path(tempfile.mkdtemp(prefix="backburner-test-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def start(folder: Path, run_directory: str) -> Iterator[Start]:
    """Start the app with one worker and these settings of `isolation`."""
    with contextlib.ExitStack() as stack:

        def start_app(store_folder: Path = folder, *, workers: int = 1, **isolation: Any) -> Local:
            none = dict.fromkeys(("cpu_standard", "cpu_small", "cpu_heavy", "gpu_small"), 0)
            app = Backburner(
                "confined",
                store=f"sqlite:///{store_folder}/tasks.db",
                queues={"one_by_one": workers, **none},
                default_queue="one_by_one",
                isolation=isolation,
            )
            app.target = confined_app.bb.target
            for spec in confined_app.bb.tools:
                app.add_tool(spec)
            return stack.enter_context(running(app))

        yield start_app


def result(local: Local, tool: str, /, owner: str = "alice", **inputs: Any) -> Any:
    task = local.run_as(owner, tool, **inputs)
    assert task.state is State.SUCCEEDED, task.error
    return task.result


def kept_file(local: Local, path: str) -> Path:
    return local.app.data_dir / "tasks" / path


def test_an_app_can_ask_for_a_process_for_each_task(start: Start) -> None:
    local = start(runners="fresh")
    assert len({result(local, "pid") for _ in range(3)}) == 3


def test_nothing_is_confined_that_nobody_asks_for(start: Start) -> None:
    local = start()
    rights = result(local, "rights")
    assert rights["NoNewPrivs"] == "0"
    assert rights["Uid"].split()[0] == str(os.getuid())
    assert result(local, "pid") == result(local, "pid")


def test_tools_can_be_kept_from_gaining_rights_in_warm_processes(start: Start) -> None:
    local = start(no_new_privileges=True)
    assert result(local, "rights")["NoNewPrivs"] == "1"
    assert result(local, "pid") == result(local, "pid")


@needs_root
def test_tools_run_as_a_user_of_their_worker(start: Start) -> None:
    found = result(start(**USERS), "who")
    assert found["user"] == [FIRST] * 3
    assert found["groups"] == [FIRST]
    assert found["child"] == str(FIRST)
    assert found["home"] == found["scratch"]
    assert found["scratch is its own"]


@needs_root
def test_tools_can_run_as_a_user_by_name(start: Start) -> None:
    found = result(start(users="nobody"), "who")
    assert found["user"] == [65534] * 3


@needs_root
def test_a_tool_of_another_user_reads_no_store_and_its_files_are_kept(start: Start, folder: Path) -> None:
    local = start(**USERS)
    assert result(local, "read", path=str(folder / "tasks.db")) == "PermissionError"
    environment = f"/proc/{local.supervisor().pid}/environ"
    assert result(local, "read", path=environment) == "PermissionError"
    assert kept_file(local, result(local, "keep")).read_text() == "mine"


@needs_root
def test_a_worker_s_next_task_cannot_reach_what_its_user_has_kept(start: Start) -> None:
    local = start(**USERS)
    kept = kept_file(local, result(local, "keep", owner="alice"))
    assert result(local, "read", owner="bob", path=str(kept)) == "PermissionError"


def test_no_file_of_another_task_is_given_out_through_a_link(start: Start) -> None:
    local = start()
    kept = local.run_as("alice", "keep")
    linked = local.run_as("bob", "keep_link", target=str(kept_file(local, kept.result)))
    (of_alice,) = local.service.artifacts(kept.task_id, owner="alice")
    (of_bob,) = local.service.artifacts(linked.task_id, owner="bob")
    assert local.app.artifacts.read(of_alice) == b"mine"
    with pytest.raises(FileNotFoundError):
        local.app.artifacts.read(of_bob)


@pytest.mark.parametrize(
    "isolation",
    [
        pytest.param(FILES, marks=needs_landlock),
        pytest.param({**NO_NETWORK, **FILES, "no_new_privileges": True}, marks=[needs_root, needs_landlock]),
    ],
    ids=["files", "all"],
)
def test_a_confined_tool_cannot_change_what_it_has_kept(start: Start, isolation: dict[str, Any]) -> None:
    local = start(**isolation)
    task = local.run_as("alice", "keep_link", target="/etc/hostname")
    assert task.state is State.SUCCEEDED, task.error
    assert "done" not in task.result
    (kept,) = local.service.artifacts(task.task_id, owner="alice")
    assert local.app.artifacts.read(kept) == b"kept"


@needs_root
def test_a_second_attempt_goes_on_in_the_folder_of_the_first(start: Start) -> None:
    local = start(**USERS)
    kept = kept_file(local, result(local, "keep_twice"))
    assert {path.name for path in kept.parents[1].glob("*/*")} == {"attempt 1", "attempt 2"}


@needs_root
def test_a_task_whose_user_cannot_reach_its_folder_fails_and_says_why(start: Start, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    local = start(tmp_path, **USERS)
    task: Task = local.run_as("alice", "pid")
    assert task.error is not None
    assert (task.state, task.error.type) == (State.FAILED, "not_confined")
    assert any("chmod o+x" in line for line in local.lines(task.task_id))


@needs_root
def test_tools_can_be_left_no_network_but_their_own(start: Start) -> None:
    local = start(**NO_NETWORK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert result(local, "connect", port=server.getsockname()[1]) == "ConnectionRefusedError"
    assert result(local, "talk_to_itself") == "done"


AS_A_PLAIN_USER = """
import ctypes, encodings.idna, os, socket
from pathlib import Path
from backburner.engines.local.isolation.confinement import leave_network
server = socket.create_server(("127.0.0.1", 0))
if os.geteuid() == 0:
    os.setresuid(61000, 61000, 61000)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process that was never root has it
leave_network()
assert "CapEff:\\t0000000000000000" in Path("/proc/self/status").read_text()
try:
    socket.create_connection(server.getsockname(), 5)
except ConnectionRefusedError:
    print("left")
"""


@pytest.mark.skipif(bool(network_missing()), reason="networks of one's own are not allowed here")
def test_a_supervisor_that_is_not_root_can_take_the_network_away_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_A_PLAIN_USER], capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr and "PermissionError" in done.stderr:
        pytest.skip("this machine lets nobody but root have a network of its own")
    assert done.stdout == "left\n", done.stderr


@needs_landlock
def test_tools_can_be_kept_to_the_folder_of_their_task(start: Start, folder: Path, tmp_path: Path) -> None:
    (folder / "beside").write_text("not hidden")
    local = start(**FILES, writable=[str(tmp_path)])
    kept = kept_file(local, result(local, "keep"))
    assert kept.read_text() == "mine"
    assert result(local, "write", path=str(tmp_path / "file")) == "done"
    assert result(local, "read", path=str(folder / "beside")) == "done"
    for path in (folder / "beside", folder / "new", Path("/etc/hostname"), Path("/tmp/left-by-a-tool")):
        assert result(local, "write", path=str(path)) == "PermissionError"
    for path in (folder / "tasks.db", folder / "tasks.db-wal", kept, local.app.data_dir / "supervisor.log"):
        assert path.exists()
        assert result(local, "read", path=str(path)) == "PermissionError"


@needs_landlock
def test_a_link_does_not_lead_a_tool_to_the_store(start: Start, folder: Path) -> None:
    (folder / "link").symlink_to("/")
    local = start(**FILES)
    assert result(local, "read", path=f"{folder}/link{folder}/tasks.db") == "PermissionError"


@needs_landlock
@pytest.mark.skipif(landlock.version() < 6, reason="this kernel cannot keep signals in")
def test_a_tool_kept_to_its_folder_signals_nobody_outside(start: Start) -> None:
    local = start(**FILES)
    assert result(local, "signal_it", pid=local.supervisor().pid) == "PermissionError"


@needs_root
@needs_landlock
def test_all_of_it_works_together(start: Start) -> None:
    local = start(**NO_NETWORK, **FILES, no_new_privileges=True)
    assert kept_file(local, result(local, "keep")).read_text() == "mine"
    assert result(local, "rights")["NoNewPrivs"] == "1"
    assert result(local, "rights")["CapEff"].strip("0") == ""
    assert result(local, "talk_to_itself") == "done"


@needs_root
@pytest.mark.parametrize(
    ("isolation", "setting"),
    [
        ({"network": "none"}, "isolation.network"),
        ({"users": "root"}, "isolation.users"),
        ({"users": "nobody-of-that-name"}, "isolation.users"),
        ({"users": f"{FIRST}-{FIRST + 1}"}, "isolation.users"),
    ],
)
def test_what_cannot_be_given_stops_the_app_from_starting(
    start: Start, isolation: dict[str, str], setting: str
) -> None:
    with pytest.raises(NotConfined) as refused:
        start(workers=3, **isolation)
    assert refused.value.code == "not_confined"
    assert refused.value.details["setting"] == setting


@pytest.mark.parametrize("users", ["0", "61009-61000", "4294967295"])
def test_a_range_that_holds_no_users_is_refused(users: str) -> None:
    with pytest.raises(ConfigError, match=r"isolation\.users"):
        Backburner("confined", store="sqlite://", isolation={"users": users})
