"""A supervisor that is stopped, stuck or cut off: its runners end before others may have their tasks."""

import contextlib
import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from backburner.core.lifecycle import State
from backburner.core.task import Resources
from backburner.errors import StoreBusy
from tests.contracts.engine.base import Work, eventually, is_alive
from tests.integration.engine.conftest import StartHost, StartLocal
from tests.integration.engine.local import Client, Local

pytestmark = pytest.mark.slow

#: A short hold, so that nobody waits for half a minute; a busy machine must keep it all the same.
QUICK = {"heartbeat_s": 0.2, "lease_grace_s": 3.0, "keeper_interval_s": 0.2}
LOST_ONCE = ["submit", "claim", "start", "retry", "claim", "start", "succeed"]


def begin(
    local: Work, tool: str = "run_until", /, options: dict[str, Any] | None = None, **inputs: Any
) -> str:
    """A task that runs."""
    task_id = local.submit(tool, options, **inputs)
    local.until_state(task_id, State.RUNNING)
    return task_id


def supervisors(local: Local) -> list[psutil.Process]:
    """The supervisors of an app that this process has started: other tests have theirs, by their logs."""
    log = local.app.data_dir / "supervisor.log"
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, OSError):
            if "backburner.supervise" in child.cmdline() and Path(f"/proc/{child.pid}/fd/2").samefile(log):
                found.append(child)
    return found


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """The process, stopped; in the end it goes on, if it is still there."""
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


@contextlib.contextmanager
def stopped_between_writes(process: psutil.Process, local: Local) -> Iterator[None]:
    """The process, stopped when it does not write: else nobody can write to SQLite as long as it is there."""
    with contextlib.ExitStack() as stack:
        while True:
            stack.enter_context(stopped(process))
            eventually(lambda: process.status() == psutil.STATUS_STOPPED)
            if is_free(local.app.data_dir / "write.lock"):
                break
            stack.close()
        yield


def is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def forget_the_pid(local: Local) -> None:
    """As if the supervisor was in a container, where its pid means another process or none."""
    found = json.loads(local.lock.path.read_text())
    local.lock.path.write_text(json.dumps({**found, "pid": None}))


# -- on one host


def test_the_runners_of_a_stopped_supervisor_end_and_another_takes_over(
    start_local: StartLocal, tmp_path: Path
) -> None:
    local = start_local(supervisor=QUICK)
    task_id = begin(local, folder=str(tmp_path))
    runner, first = local.runner_of(task_id), local.supervisor()
    with stopped(first):
        eventually(lambda: not is_alive(runner.pid))
        local.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
        assert not is_alive(first.pid)
    (tmp_path / "go").touch()
    assert local.end(task_id).result == 2
    assert local.trail(task_id) == LOST_ONCE


LOCK_AND_STOP = """
import fcntl, os, signal, sys
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_process_that_keeps_the_store_locked_ends_no_task(
    start_local: StartLocal, tmp_path: Path
) -> None:
    local = start_local(supervisor=QUICK)
    task_id = begin(local, folder=str(tmp_path))
    runner, supervisor = local.runner_of(task_id), local.supervisor()
    with subprocess.Popen(
        [sys.executable, "-c", LOCK_AND_STOP, local.app.data_dir / "write.lock"]
    ) as stopped_one:
        try:
            eventually(lambda: psutil.Process(stopped_one.pid).status() == psutil.STATUS_STOPPED)
            # This waits for longer than anybody may be silent.
            with pytest.raises(StoreBusy, match=f"process {stopped_one.pid} has held its write lock"):
                local.submit("add", a=1)
            assert is_alive(runner.pid)
        finally:
            stopped_one.kill()
    (tmp_path / "go").touch()
    assert local.end(task_id).result == 1
    assert local.trail(task_id) == ["submit", "claim", "start", "succeed"]
    assert local.supervisor() == supervisor


@pytest.mark.whole
def test_a_supervisor_that_wakes_and_was_superseded_leaves(start_local: StartLocal, tmp_path: Path) -> None:
    local = start_local(supervisor=QUICK)
    task_id = begin(local, folder=str(tmp_path))
    first = local.supervisor()
    forget_the_pid(local)
    with stopped_between_writes(first, local):
        local.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
        second = local.supervisor()
        assert second.pid != first.pid
        assert is_alive(first.pid)
    eventually(lambda: not is_alive(first.pid))
    (tmp_path / "go").touch()
    assert local.end(task_id).result == 2
    assert local.trail(task_id) == LOST_ONCE
    assert local.run("parent").result == second.pid


@pytest.mark.whole
def test_servers_that_supersede_a_stopped_supervisor_at_the_same_moment_start_one(
    start_local: StartLocal, tmp_path: Path
) -> None:
    servers = [start_local(supervisor=QUICK) for _ in range(4)]
    task_id = begin(servers[0], folder=str(tmp_path))
    first = servers[0].supervisor()
    forget_the_pid(servers[0])
    with stopped_between_writes(first, servers[0]):
        servers[0].until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
        assert len({first.pid, *(server.supervisor().pid for server in servers)}) == 2
        assert len(supervisors(servers[0])) == 2
    eventually(lambda: len(supervisors(servers[0])) == 1)
    (tmp_path / "go").touch()
    assert servers[0].end(task_id).result == 2


def test_a_supervisor_that_was_stopped_for_a_moment_goes_on(start_local: StartLocal, tmp_path: Path) -> None:
    local = start_local(supervisor={**QUICK, "lease_grace_s": 30})
    task_id = begin(local, folder=str(tmp_path))
    first = local.supervisor()
    with stopped(first):
        (tmp_path / "go").touch()
    assert local.end(task_id).result == 1
    assert local.supervisor() == first


# -- on more than one


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("how", ["cut", "frozen", "stopped"])
def test_no_other_host_runs_the_task_of_one_that_is_cut_off_before_its_runners_have_ended(
    start_host: StartHost, client: Client, tmp_path: Path, how: str
) -> None:
    first, way = start_host("first", **QUICK)
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    task_id = begin(client, "ledgered", kind="child", ledger=str(ledger), seconds=60)
    eventually((ledger / "ledger").exists)
    supervisor, runner = first.supervisor(), first.runner_of(task_id)
    family = [runner, *runner.children(recursive=True)]
    start_host("second", **QUICK)
    if how == "stopped":
        first.app.engine.stop()  # nobody may help on this host
        supervisor.suspend()
    else:
        way.cut() if how == "cut" else way.freeze()
    try:
        eventually(lambda: (ledger / "ledger").read_text().count("\n") > 1)
        client.service.cancel(task_id)
        assert client.end(task_id).state is State.CANCELLED
        assert "overlap" not in (ledger / "ledger").read_text()
    finally:
        way.mend()
        if how == "stopped":
            supervisor.resume()
    assert is_alive(supervisor.pid)
    assert not [process for process in family if is_alive(process.pid)]
    assert client.trail(task_id)[:5] == ["submit", "claim", "start", "retry", "claim"]


def test_a_host_that_was_cut_off_works_again(start_host: StartHost, client: Client, tmp_path: Path) -> None:
    host, way = start_host("only", **QUICK)
    task_id = begin(client, folder=str(tmp_path))
    runner = host.runner_of(task_id)
    supervisor = host.supervisor()
    way.cut()
    eventually(lambda: not is_alive(runner.pid))
    way.mend()
    client.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
    (tmp_path / "go").touch()
    assert client.end(task_id).result == 2
    assert client.trail(task_id) == LOST_ONCE
    assert host.supervisor() == supervisor


@pytest.mark.whole
def test_a_time_limit_is_enforced_while_the_supervisor_waits_for_its_store(
    start_host: StartHost, client: Client
) -> None:
    host, way = start_host("only", **{**QUICK, "lease_grace_s": 60})
    task_id = begin(client, "stay", {"resources": Resources(max_runtime_s=4.0)}, seconds=600)
    runner = host.runner_of(task_id)
    way.freeze()
    eventually(lambda: not is_alive(runner.pid))
    way.mend()
    assert client.end(task_id).state is State.TIMED_OUT


def test_a_cancelled_tool_is_killed_while_the_supervisor_waits_for_its_store(
    start_host: StartHost, client: Client
) -> None:
    host, way = start_host("only", **{**QUICK, "lease_grace_s": 60, "cancel_grace_s": 2})
    task_id = begin(client, "stay", seconds=600)
    runner = host.runner_of(task_id)
    client.service.cancel(task_id)
    client.until_state(task_id, State.CANCELLING)
    way.freeze()
    eventually(lambda: not is_alive(runner.pid))
    way.mend()
    assert client.end(task_id).state is State.CANCELLED


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("how", ["cut", "frozen"])
def test_an_answer_that_is_given_while_the_store_is_away_is_brought_to_the_tool(
    start_host: StartHost, client: Client, how: str
) -> None:
    _, way = start_host("only", **{**QUICK, "lease_grace_s": 60})
    task_id = client.submit("ask_name")
    (question,) = client.until_state(task_id, State.INPUT_REQUIRED).questions
    way.cut() if how == "cut" else way.freeze()
    answer = {"action": "accept", "content": {"name": "Ann"}}
    client.service.answer_input(task_id, {question.key: answer})
    way.mend()
    task = client.end(task_id)
    assert (task.result["content"], task.attempt) == ({"name": "Ann"}, 1)
