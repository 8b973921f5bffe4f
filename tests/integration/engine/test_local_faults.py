"""Real processes and SIGKILL: no task is lost, none runs twice at a time, none is stuck."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from backburner.core.lifecycle import State
from backburner.core.task import Resources
from backburner.core.times import SystemClock
from tests.contracts.engine.base import eventually, is_alive
from tests.integration.engine.conftest import StartLocal
from tests.integration.engine.local import Local, kill
from tests.services import PostgresServer, ended

pytestmark = pytest.mark.slow

CLOCK = SystemClock()
#: Less than a lease lasts: so nobody waited for its end.
SOON_MS = 10_000
LOST_ONCE = ["submit", "claim", "start", "retry", "claim", "start", "succeed"]


def begin(local: Local, tool: str = "run_until", **inputs: Any) -> str:
    """A task that runs."""
    task_id = local.submit(tool, **inputs)
    local.until_state(task_id, State.RUNNING)
    return task_id


def release(folder: Path) -> None:
    """Let every `run_until` of that folder end."""
    (folder / "go").touch()


def pending_signals(pid: int) -> int:
    """The signals that a process has been sent and not taken yet, as a mask."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("ShdPnd:")[2].split()[0], 16)


def test_a_killed_runner_s_task_runs_again_at_once(start_local: StartLocal, tmp_path: Path) -> None:
    # Nobody else says anything for so long that the test would be over.
    local = start_local(supervisor={"heartbeat_s": 120, "lease_grace_s": 600})
    task_id = begin(local, folder=str(tmp_path))
    kill(local.runner_of(task_id))
    local.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
    release(tmp_path)
    assert local.end(task_id).result == 2
    assert local.trail(task_id) == LOST_ONCE
    lost = next(event for event in local.events(task_id) if event.signal == "retry")
    assert lost.detail["error"] == "worker_lost"
    assert "SIGKILL" in lost.detail["message"]
    again = [event for event in local.events(task_id) if event.signal == "start"][1]
    assert again.ts - lost.ts < SOON_MS


def test_a_killed_runner_takes_its_children_along(local: Local) -> None:
    task_id = begin(local, "stay", seconds=600)
    eventually(lambda: len(local.lines(task_id)) == 3)
    children = [int(line) for line in local.lines(task_id)]
    kill(local.runner_of(task_id))
    local.until(task_id, lambda task: task.attempt == 2)
    assert not any(map(is_alive, children))


def test_a_killed_zygote_is_replaced_and_no_task_fails_for_it(local: Local, tmp_path: Path) -> None:
    running = begin(local, folder=str(tmp_path))
    with_children = begin(local, "stay", seconds=600)
    eventually(lambda: len(local.lines(with_children)) == 3)
    children = [int(line) for line in local.lines(with_children)]
    waiting = local.submit("add", a=1)
    kill(*local.zygotes())
    for task_id in (running, with_children):
        local.until(task_id, lambda task: task.attempt == 2)
    assert not any(map(is_alive, children))
    release(tmp_path)
    local.service.cancel(with_children)
    assert local.end(running).state is State.SUCCEEDED
    assert local.end(waiting).state is State.SUCCEEDED
    assert local.trail(running) == LOST_ONCE


def test_a_killed_supervisor_is_replaced_and_its_tasks_run_again(local: Local, tmp_path: Path) -> None:
    task_id = begin(local, folder=str(tmp_path))
    with_children = begin(local, "stay", seconds=600)
    eventually(lambda: len(local.lines(with_children)) == 3)
    family = local.family()
    assert len(family) >= 7
    killed_at = time.time_ns() // 1_000_000
    kill(local.supervisor())
    local.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
    assert not [process for process in family if process.is_running() and is_alive(process.pid)]
    release(tmp_path)
    local.service.cancel(with_children)
    assert local.end(task_id).result == 2
    assert local.trail(task_id) == LOST_ONCE
    again = [event for event in local.events(task_id) if event.signal == "start"][1]
    assert again.ts - killed_at < SOON_MS


def test_a_task_goes_on_while_its_server_is_killed_and_restarted(
    start_local: StartLocal, tmp_path: Path
) -> None:
    """The same attempt, and the new server reads its result."""
    script = (
        "import sys, time\n"
        "from tests.contracts.engine_tools import contract_app\n"
        "app = contract_app(store=sys.argv[1]); app.start()\n"
        "print(app.service.submit('run_until', {'folder': sys.argv[2]}).task_id, flush=True)\n"
        "time.sleep(600)\n"
    )
    store = f"sqlite:///{tmp_path}/tasks.db"
    server = subprocess.Popen(
        [sys.executable, "-c", script, store, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    task_id = server.stdout.readline().strip()
    eventually((tmp_path / f"{task_id}-1").exists)
    server.kill()
    server.wait()
    server.stdout.close()

    local = start_local(store=store)
    supervisor = local.supervisor().pid
    local.until_state(task_id, State.RUNNING)
    release(tmp_path)
    assert local.end(task_id).result == 1
    assert local.trail(task_id) == ["submit", "claim", "start", "succeed"]
    assert local.supervisor().pid == supervisor


def test_after_a_reboot_everything_goes_on(start_local: StartLocal, tmp_path: Path) -> None:
    """All are killed at once; what is left of them is ended by the supervisor that comes next."""
    local = start_local()
    running = begin(local, folder=str(tmp_path))
    with_children = begin(local, "stay", seconds=600)
    eventually(lambda: len(local.lines(with_children)) == 3)
    asking = local.submit("ask_name", {"queue": "one_by_one"})
    local.until_state(asking, State.INPUT_REQUIRED)
    queued = [local.submit("add", a=number) for number in range(5)]
    local.app.engine.stop()  # no server that could help
    family = local.family()
    kill(*family)
    eventually(lambda: local.supervisor_pid() is None)

    again = start_local()
    for task_id in (running, with_children):
        again.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
    assert not [process for process in family if process.is_running() and is_alive(process.pid)]
    status = again.until(asking, lambda task: task.attempt == 2 and task.state is State.INPUT_REQUIRED)
    again.service.answer_input(asking, {status.questions[0].key: {"action": "decline"}})
    release(tmp_path)
    again.service.cancel(with_children)
    assert again.end(running).result == 2
    assert again.end(with_children).state is State.CANCELLED
    assert again.end(asking).state is State.SUCCEEDED
    assert [again.end(task_id).state for task_id in queued] == [State.SUCCEEDED] * 5


def test_orphans_of_a_killed_supervisor_end_without_anybody_s_help(local: Local) -> None:
    task_id = begin(local, "stay", seconds=600)
    eventually(lambda: len(local.lines(task_id)) == 3)
    local.app.engine.stop()
    family = local.family()
    kill(local.supervisor())
    eventually(lambda: not [process for process in family if is_alive(process.pid)])


@pytest.mark.whole
def test_servers_that_start_at_the_same_moment_share_one_supervisor(
    start_local: StartLocal, tmp_path: Path
) -> None:
    script = (
        "import sys\n"
        "from tests.contracts.engine_tools import contract_app\n"
        "app = contract_app(store=sys.argv[1])\n"
        "sys.stdin.readline()\n"
        "app.start()\n"
        "print(app.service.wait(app.service.submit('parent', {}).task_id, 30).task.result, flush=True)\n"
    )
    store = f"sqlite:///{tmp_path}/tasks.db"
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", script, store],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    outputs = []
    for server in servers:
        assert server.stdin is not None
        server.stdin.write("go\n")
        server.stdin.flush()
    for server in servers:
        outputs.append(server.communicate(timeout=60)[0].strip())
    local = start_local(store=store)
    assert set(outputs) == {str(local.supervisor().pid)}


def test_sigterm_lets_tasks_finish(local: Local, tmp_path: Path) -> None:
    local.app.engine.stop()
    running = begin(local, folder=str(tmp_path))
    supervisor = local.supervisor()
    supervisor.send_signal(signal.SIGTERM)
    later = local.submit("add", a=1)
    release(tmp_path)
    assert local.end(running).result == 1
    assert ended(supervisor, within=10)
    assert local.store.get(later).state is State.QUEUED
    assert local.store.workers() == []


def test_sigterm_hands_back_what_is_not_over_in_the_grace_time(start_local: StartLocal) -> None:
    local = start_local(supervisor={"drain_grace_s": 0.3})
    local.app.engine.stop()
    task_id = begin(local, "sleep", seconds=600)
    supervisor = local.supervisor()
    supervisor.send_signal(signal.SIGTERM)
    assert ended(supervisor, within=10)
    task = local.store.get(task_id)
    assert (task.state, task.failures) == (State.QUEUED, 0)
    assert local.trail(task_id) == ["submit", "claim", "start", "hand_back"]


def test_a_runner_that_is_ended_together_with_its_supervisor_hands_its_task_back(local: Local) -> None:
    local.app.engine.stop()
    task_id = begin(local, "sleep", seconds=600)
    supervisor, runner = local.supervisor(), local.runner_of(task_id)
    supervisor.suspend()  # so that it hears of both at once
    runner.terminate()
    eventually(lambda: not is_alive(runner.pid))
    supervisor.terminate()
    supervisor.resume()
    assert ended(supervisor, within=10)
    task = local.store.get(task_id)
    assert (task.state, task.failures) == (State.QUEUED, 0)
    assert local.trail(task_id) == ["submit", "claim", "start", "hand_back"]


def test_a_second_sigterm_hands_back_at_once(local: Local) -> None:
    local.app.engine.stop()
    task_id = begin(local, "stay", seconds=600)
    eventually(lambda: len(local.lines(task_id)) == 3)
    family = local.family()
    supervisor = local.supervisor()
    supervisor.send_signal(signal.SIGTERM)
    eventually(lambda: not pending_signals(supervisor.pid))
    supervisor.send_signal(signal.SIGTERM)
    assert ended(supervisor)
    assert not [process for process in family if is_alive(process.pid)]
    assert local.trail(task_id)[-1] == "hand_back"


def share_of_a_cpu(process: psutil.Process) -> float:
    """How much of one the process takes, for two seconds from now."""
    began, used = CLOCK.steady_ms(), sum(process.cpu_times()[:2])
    eventually(lambda: CLOCK.steady_ms() > began + 2000)
    return (sum(process.cpu_times()[:2]) - used) * 1000 / (CLOCK.steady_ms() - began)


@pytest.mark.whole
def test_a_supervisor_that_drains_does_not_turn_in_circles_for_a_retry_that_is_due(
    local: Local, tmp_path: Path
) -> None:
    local.app.engine.stop()
    running, retried = begin(local, folder=str(tmp_path)), local.submit("succeed_later")
    due_at = local.until(retried, lambda task: task.ready_at is not None).task.ready_at
    assert due_at is not None
    supervisor = local.supervisor()
    supervisor.send_signal(signal.SIGTERM)
    eventually(lambda: CLOCK.now_ms() > due_at)
    assert share_of_a_cpu(supervisor) < 0.1
    release(tmp_path)
    assert local.end(running).result == 1
    assert ended(supervisor, within=10)
    assert (local.store.get(retried).state, local.store.get(retried).attempt) == (State.QUEUED, 1)


@pytest.mark.whole
def test_a_supervisor_that_drains_does_not_turn_in_circles_for_a_runner_whose_end_it_waits_for(
    start_local: StartLocal,
) -> None:
    local = start_local(supervisor={"drain_grace_s": 0.1})
    local.app.engine.stop()
    task_id = begin(local, "sleep", seconds=600)
    supervisor, runner, (zygote,) = local.supervisor(), local.runner_of(task_id), local.zygotes()
    zygote.suspend()  # so nobody tells the supervisor that its runner has ended
    supervisor.send_signal(signal.SIGTERM)
    eventually(lambda: not is_alive(runner.pid))
    assert share_of_a_cpu(supervisor) < 0.1
    zygote.resume()
    assert ended(supervisor, within=10)
    assert local.trail(task_id)[-1] == "hand_back"


def test_a_supervisor_without_work_leaves_and_comes_back_when_there_is_some(
    start_local: StartLocal,
) -> None:
    local = start_local(supervisor={"idle_exit_s": 0.3})
    first = local.run("parent")
    assert first.state is State.SUCCEEDED
    eventually(lambda: not is_alive(first.result))
    eventually(lambda: local.supervisor_pid() is None)
    again = local.run("parent")
    assert again.state is State.SUCCEEDED
    assert again.result != first.result


def test_a_task_that_waits_for_its_retry_keeps_the_supervisor(start_local: StartLocal) -> None:
    local = start_local(supervisor={"idle_exit_s": 0.1})
    task = local.run("succeed_at", attempt=3)
    assert (task.state, task.attempt) == (State.SUCCEEDED, 3)


@pytest.mark.whole
def test_tasks_go_on_while_the_store_is_away_for_less_than_the_grace_time(
    postgres_server: PostgresServer, start_local: StartLocal, tmp_path: Path
) -> None:
    local = start_local(
        store=postgres_server.url, data_dir=str(tmp_path / "data"), supervisor={"heartbeat_s": 0.2}
    )
    running = begin(local, folder=str(tmp_path))
    talking = local.submit("talk_until", folder=str(tmp_path))
    queued = local.submit("add", {"queue": "one_by_one"}, a=1)
    local.end(queued)
    local.until_log(talking, "word 3")
    heard_of = local.service.status(running).task.heartbeat_at or 0
    postgres_server.stop()
    eventually(lambda: CLOCK.now_ms() > heard_of + 3000)  # so many heartbeats were missed
    release(tmp_path)
    postgres_server.start()
    task = local.end(running)
    assert (task.state, task.attempt) == (State.SUCCEEDED, 1)
    task = local.end(talking)
    assert (task.state, task.attempt) == (State.SUCCEEDED, 1)
    assert local.lines(talking) == [f"word {number}" for number in range(task.result)]
    assert local.run("add", a=1).state is State.SUCCEEDED


@pytest.mark.whole
def test_a_tool_that_holds_the_gil_for_longer_than_a_lease_lasts_is_not_lost(start_local: StartLocal) -> None:
    local = start_local(supervisor={"heartbeat_s": 0.2, "lease_grace_s": 3.0})
    holding = local.submit("hold_the_gil", seconds=5)
    local.until_state(holding, State.RUNNING)
    assert local.run("add", a=1).state is State.SUCCEEDED
    task = local.end(holding)
    assert (task.state, task.attempt) == (State.SUCCEEDED, 1)


def delete_data_folder(local: Local) -> None:
    """Whatever its supervisor may put into it meanwhile."""
    shutil.rmtree(local.app.data_dir, ignore_errors=True)
    local.lock.path.unlink(missing_ok=True)


def test_a_task_is_tried_again_when_the_data_folder_and_its_supervisor_are_gone(
    start_local: StartLocal, tmp_path: Path
) -> None:
    quick = {"heartbeat_s": 0.2, "lease_grace_s": 2.0, "idle_exit_s": 1.0}
    local = start_local(supervisor=quick)
    task_id = local.submit("run_until", folder=str(tmp_path))
    local.until_state(task_id, State.RUNNING)
    supervisor = local.supervisor()
    delete_data_folder(local)
    supervisor.kill()
    local.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
    (tmp_path / "go").touch()
    assert local.end(task_id).result == 2


def test_a_supervisor_gives_back_what_it_has_when_another_takes_its_deleted_data_folder(
    start_local: StartLocal, tmp_path: Path
) -> None:
    local = start_local()
    task_id = local.submit("run_until", folder=str(tmp_path))
    local.until_state(task_id, State.RUNNING)
    first = local.supervisor()
    delete_data_folder(local)
    local.until(task_id, lambda task: task.attempt == 2 and task.state is State.RUNNING)
    assert local.supervisor() != first
    (tmp_path / "go").touch()
    assert local.end(task_id).result == 2


def test_a_supervisor_whose_store_was_removed_leaves(start_local: StartLocal, tmp_path: Path) -> None:
    local = start_local(supervisor={"heartbeat_s": 0.2})
    assert local.run("add", a=1).state is State.SUCCEEDED
    supervisor = local.supervisor()
    (tmp_path / "tasks.db").unlink()
    eventually(lambda: not is_alive(supervisor.pid))


@pytest.mark.whole
def test_a_stopped_runner_is_killed_at_its_time_limit(local: Local) -> None:
    task_id = local.submit("sleep", {"resources": Resources(max_runtime_s=4.0)}, seconds=600)
    local.until_state(task_id, State.RUNNING)
    runner = local.runner_of(task_id)
    runner.suspend()
    assert local.run("add", a=1).state is State.SUCCEEDED
    assert local.end(task_id).state is State.TIMED_OUT
    assert not is_alive(runner.pid)


@pytest.mark.whole
def test_a_stopped_runner_does_not_take_its_next_task_along(start_local: StartLocal) -> None:
    local = start_local(supervisor={"heartbeat_s": 0.2, "lease_grace_s": 3.0}, limits={"max_runtime_s": 2.0})
    pid = local.run("pid", {"queue": "one_by_one"}).result
    psutil.Process(pid).suspend()
    task = local.run("add", {"queue": "one_by_one"}, a=1)
    assert task.finished
    assert not is_alive(pid)
    assert local.run("add", {"queue": "one_by_one"}, a=1).state is State.SUCCEEDED


def test_a_runner_that_takes_nothing_in_stops_nobody_else(local: Local) -> None:
    """Not while it is stopped, however much there is to send to it."""
    one_worker = {"queue": "one_by_one"}
    runner = psutil.Process(local.run("pid", one_worker).result)
    runner.suspend()
    large = local.submit("say", one_worker, words="x" * 900_000)
    assert local.run("add", a=1).state is State.SUCCEEDED
    assert local.store.get(large).attempt == 1
    runner.resume()
    assert local.end(large).state is State.SUCCEEDED
    assert local.store.get(large).attempt == 1
    assert local.run("pid", one_worker).result == runner.pid


@pytest.mark.whole
def test_a_cancel_that_overtakes_the_start_of_its_task_is_heard_by_its_question(
    start_local: StartLocal,
) -> None:
    local = start_local(supervisor={"cancel_grace_s": 600})
    one_worker = {"queue": "one_by_one"}
    runner = psutil.Process(local.run("pid", one_worker).result)
    runner.suspend()
    task_id = local.submit("ask_at_length", one_worker, words="x" * 900_000)
    local.until_state(task_id, State.RUNNING)
    local.service.cancel(task_id)
    local.until_state(task_id, State.CANCELLING)
    runner.resume()  # the cancel is there, and most of the task is still to come
    assert local.end(task_id).state is State.CANCELLED
    assert local.run("pid", one_worker).state is State.SUCCEEDED


def all_are_buried(local: Local) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):  # one has just gone: look again
        return not [p for p in local.family() if p.status() == psutil.STATUS_ZOMBIE]
    return False


@pytest.mark.whole
def test_a_supervisor_keeps_nothing_of_the_runners_that_it_let_go(local: Local) -> None:
    def churn(times: int) -> int:
        for _ in range(times):
            assert local.run("fresh_pid").state is State.SUCCEEDED
            local.run("end_badly", how="kill")
        local.run("add", a=1)
        kill(*local.zygotes())
        eventually(lambda: local.run("add", a=1).state is State.SUCCEEDED)
        eventually(lambda: all_are_buried(local))
        return local.supervisor().num_fds()

    before = churn(3)
    assert churn(20) <= before + 8  # the runners that are warm now


def test_a_supervisor_that_dies_of_an_error_is_replaced(local: Local, tmp_path: Path) -> None:
    task_id = begin(local, folder=str(tmp_path))
    os.kill(local.supervisor().pid, signal.SIGABRT)
    release(tmp_path)
    assert local.end(task_id).state is State.SUCCEEDED
