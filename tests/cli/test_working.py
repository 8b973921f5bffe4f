"""`worker` and `run-task`: doing the work in the foreground."""

from __future__ import annotations

import signal

import pytest

from tests import services
from tests.cli.conftest import Lab, Worker


def test_a_second_worker_is_told_who_works_already(lab: Lab, worker: Worker) -> None:
    second = lab.run("worker", "lab.py")
    assert second.returncode == 4
    assert f"already: pid {worker.process.pid}" in second.stderr


def test_the_first_signal_lets_the_task_finish_and_leaves_the_rest_in_the_queue(lab: Lab) -> None:
    worker = Worker(lab, "--queue", "cpu_standard=1")
    gate = lab.gate()
    task_id = lab.submit("relax", "structure=cu", str(gate))
    lab.wait_for_state(task_id, "running")
    waiting = lab.submit("add", "a=1")
    worker.signal()
    gate.open()
    code, said = worker.end()
    assert (code, "finished or back in its queue" in said) == (0, True)
    states = {task["task_id"]: task["state"] for task in lab.json("ls")["tasks"]}
    assert states == {task_id: "succeeded", waiting: "queued"}


def test_the_second_signal_hands_back_and_costs_no_try(lab: Lab) -> None:
    worker = Worker(lab)
    task_id = lab.submit("relax", "structure=cu", str(lab.gate()))
    lab.wait_for_state(task_id, "running")
    worker.signal()
    worker.process.send_signal(signal.SIGINT)
    assert worker.end()[0] == 0
    shown = lab.json("show", task_id)
    assert (shown["state"], shown["failures"]) == ("queued", 0)


@pytest.mark.slow
def test_a_worker_of_one_queue_leaves_the_others_alone(lab: Lab) -> None:
    worker = Worker(lab, "--queue", "gpu_small=2", "--idle-exit", "200ms")
    assert ": gpu_small 2." in worker.greeting
    assert worker.end()[0] == 0
    wrong = lab.run("worker", "lab.py", "--queue", "nope")
    assert wrong.returncode == 2


def test_run_task_runs_that_task_alone_and_once(lab: Lab) -> None:
    other, task_id = _submitted_without_a_worker(lab)
    done = lab.run("run-task", task_id, "--store", lab.url, BACKBURNER_TARGET="")
    assert (done.returncode, done.stderr) == (0, f"{task_id} succeeded\n")
    again = lab.json("run-task", task_id)
    assert again == {"task_id": task_id, "state": "succeeded", "leased": False}
    states = {task["task_id"]: task["state"] for task in lab.json("ls")["tasks"]}
    assert states == {other: "queued", task_id: "succeeded"}


@pytest.mark.slow
def test_run_task_leaves_the_hosts_supervisor_and_its_tasks_alone(lab: Lab) -> None:
    worker = Worker(lab, "--queue", "cpu_standard=1")
    gate = lab.gate()
    running = lab.submit("relax", "structure=cu", str(gate))
    lab.wait_for_state(running, "running")
    waiting = lab.submit("add", "a=1")
    assert lab.run("run-task", waiting).returncode == 0
    assert lab.json("show", running)["state"] == "running"
    gate.open()
    assert lab.json("result", running, "--wait")["state"] == "succeeded"
    worker.close()


@pytest.mark.slow
def test_run_task_passes_a_failure_on_as_its_exit_code(lab: Lab) -> None:
    worker = Worker(lab, "--queue", "gpu_small")
    task_id = lab.submit("boom")
    assert lab.run("run-task", task_id).returncode == 1
    worker.close()


def _submitted_without_a_worker(lab: Lab) -> tuple[str, str]:
    """Two tasks in a queue that nobody works on."""
    worker = Worker(lab, "--queue", "gpu_small")
    tasks = lab.submit("add", "a=1"), lab.submit("add", "a=2")
    worker.signal()
    assert worker.end()[0] == 0
    assert services.wait_until(lambda: lab.json("workers")["workers"] == [])
    return tasks
