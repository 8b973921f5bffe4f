"""`status` and `supervisor`, with a supervisor started by a server and one started by the user."""

from __future__ import annotations

import contextlib
import json

import psutil
import pytest

from backburner import __version__
from backburner.engines.local import SupervisorLock
from backburner.engines.local.submission import SOCKET
from tests import services
from tests.integration.cli.conftest import Lab, Worker
from tests.integration.cli.test_handing_over import Detached, holder


def nobody_works(lab: Lab) -> bool:
    return SupervisorLock(lab.folder / "lab.db.d").holder() is None


def test_status_stop_and_their_codes_where_nobody_works(lab: Lab) -> None:
    lab.submit("add", a=1)
    status = lab.run("status")
    assert (status.returncode, "none" in status.stdout) == (1, True)
    stopped = lab.run("supervisor", "stop", "--store", lab.url, BACKBURNER_TARGET="")
    assert (stopped.returncode, stopped.stderr) == (0, "No supervisor is running for this store.\n")


@pytest.mark.slow
def test_status_says_who_works_what_runs_and_who_waits_for_an_answer(lab: Lab, worker: Worker) -> None:
    asking = lab.submit("ask", owner="ann")
    lab.wait_for_state(asking, "input_required")
    shown = lab.json("status")
    supervisor = shown["supervisor"]
    assert (supervisor["pid"], supervisor["state"]) == (worker.process.pid, "working")
    assert (supervisor["version"], supervisor["detached"]) == (__version__, False)
    assert [task["task_id"] for task in shown["tasks"]] == [asking]
    (question,) = shown["questions"]
    said = lab.run("status", "--store", lab.url, BACKBURNER_TARGET="")
    assert said.returncode == 0
    assert f"pid {worker.process.pid} is working" in said.stdout
    assert "in the foreground" in said.stdout
    doctor = lab.run("doctor")
    assert f"→ {question['command']}" in doctor.stdout
    answered = lab.run(*question["command"].split()[1:], "element=cu")
    assert answered.returncode == 0, answered.stderr
    lab.wait_for_state(asking, "succeeded")


@pytest.mark.slow
def test_a_supervisor_goes_on_when_its_server_is_killed_before_it_is_ready(lab: Lab) -> None:
    task_id = lab.submit("add", a=1)
    server = lab.start("serve", "--http", f"127.0.0.1:{services.free_port()}", "--allow-anonymous")

    def has_begun(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return "backburner.supervise" in process.cmdline()
        return False

    try:
        assert services.wait_until(lambda: any(map(has_begun, psutil.Process(server.pid).children())))
    finally:
        server.kill()
        server.communicate(timeout=30)
    lab.wait_for_state(task_id, "succeeded")
    assert services.wait_until(lambda: nobody_works(lab))


@pytest.mark.slow
def test_stop_lets_what_runs_finish_and_waits_for_it(lab: Lab) -> None:
    detached = Detached(lab)
    stopping = lab.start("supervisor", "stop", "-t", "lab.py")
    takes_tasks = lab.folder / "lab.db.d" / SOCKET
    # Else it may have nothing left to do, and be gone, before it is told to stop.
    assert services.wait_until(lambda: not takes_tasks.exists())
    detached.gate.open()
    _, said = stopping.communicate(timeout=30)
    assert (stopping.returncode, f"pid {detached.process.pid} has exited" in said) == (0, True)
    assert nobody_works(lab)
    assert lab.task(detached.task_id).state == "succeeded"


@pytest.mark.slow
def test_stop_at_once_hands_back_also_what_one_that_retired_still_runs(lab: Lab) -> None:
    detached = Detached(lab)
    worker = Worker(lab)
    stopped = lab.json("supervisor", "stop", "--now")
    assert set(stopped["stopped"]) == {detached.process.pid, worker.process.pid}
    assert nobody_works(lab)
    task = lab.task(detached.task_id)
    assert (task.state, task.failures) == ("queued", 0)
    assert worker.end()[0] == 0


@pytest.mark.slow
def test_restart_puts_another_in_place_and_loses_nothing(lab: Lab) -> None:
    lab.have_supervisors_stay()
    detached = Detached(lab)
    try:
        restarted = lab.json("supervisor", "restart", "-t", "lab.py")
        assert restarted == {"pid": holder(lab).pid, "retired": detached.process.pid}
        status = json.loads(lab.run("status", "--json").stdout)
        assert [one["pid"] for one in status["retired"]] == [detached.process.pid]
        assert lab.run("call", "add", "a=1").stdout.strip() == "3"
        detached.gate.open()
        lab.wait_for_state(detached.task_id, "succeeded")
        assert lab.task(detached.task_id).attempt == 1
    finally:
        detached.gate.open()
        lab.run("supervisor", "stop")
        assert services.wait_until(lambda: nobody_works(lab))


@pytest.mark.slow
def test_restart_starts_one_where_there_is_none_and_leaves_a_worker_of_the_users_alone(lab: Lab) -> None:
    gate = lab.gate()
    lab.submit("relax", structure="cu", gate=gate.path)  # so that it stays
    started = lab.run("supervisor", "restart")
    assert (started.returncode, f"pid {holder(lab).pid} has started" in started.stderr) == (0, True)
    gate.open()
    with contextlib.closing(Worker(lab)) as worker:
        refused = lab.run("supervisor", "restart")
        assert refused.returncode == 4
        assert f"pid {worker.process.pid} does not give up its place" in refused.stderr
