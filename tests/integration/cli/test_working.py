"""`worker` and `run-task`: doing the work in the foreground."""

from __future__ import annotations

import contextlib
import json
import signal

import pytest

from backburner import Backburner, TaskService, open_store
from backburner.app import data_dir
from backburner.mcp.dialects.task_id.prompt_log import PromptLogs
from backburner.settings.groups import has_gpu
from backburner.tools.targets import load
from tests import services
from tests.integration.cli.conftest import Lab, Worker


def test_a_worker_works_for_the_app_that_its_line_names(lab: Lab) -> None:
    """The line of the README, the guide and the systemd unit, where nothing else names the app."""
    task_id = lab.submit("add", a=1)
    done = lab.run("worker", "lab.py", "--idle-exit", "100ms", BACKBURNER_TARGET="")
    assert done.returncode == 0, done.stderr
    assert lab.task(task_id).state == "succeeded"


def test_a_second_worker_is_told_who_works_already(lab: Lab, worker: Worker) -> None:
    second = lab.run("worker", "lab.py")
    assert second.returncode == 4
    assert f"already: pid {worker.process.pid}" in second.stderr


@pytest.mark.slow
def test_the_first_signal_lets_the_task_finish_and_leaves_the_rest_in_the_queue(lab: Lab) -> None:
    worker = Worker(lab, "--queue", "cpu_standard=1")
    gate = lab.gate()
    task_id = lab.submit("relax", structure="cu", gate=gate.path)
    lab.wait_for_state(task_id, "running")
    waiting = lab.submit("add", a=1)
    worker.signal()
    gate.open()
    code, said = worker.end()
    assert (code, "finished or back in their queue" in said) == (0, True)
    assert (lab.task(task_id).state, lab.task(waiting).state) == ("succeeded", "queued")


@pytest.mark.slow
def test_the_second_signal_hands_back_and_costs_no_try(lab: Lab) -> None:
    worker = Worker(lab)
    task_id = lab.submit("relax", structure="cu", gate=lab.gate().path)
    lab.wait_for_state(task_id, "running")
    worker.signal()
    worker.process.send_signal(signal.SIGINT)
    assert worker.end()[0] == 0
    assert (lab.task(task_id).state, lab.task(task_id).failures) == ("queued", 0)


@pytest.mark.slow
@pytest.mark.skipif(has_gpu(), reason="this host has a GPU")
def test_without_a_gpu_a_worker_takes_the_gpu_queue_only_if_it_is_configured(lab: Lab) -> None:
    configured = {"BACKBURNER_QUEUES": '{"gpu_small": {"workers": 1}}'}
    for settings, takes_gpu in (({}, False), (configured, True)):
        lab.environment.update(settings)
        worker = Worker(lab, "--idle-exit", "200ms")
        assert ("gpu_small" in worker.greeting, worker.end()[0]) == (takes_gpu, 0)


@pytest.mark.slow
def test_a_worker_of_one_queue_leaves_the_others_alone(lab: Lab) -> None:
    worker = Worker(lab, "--queue", "gpu_small=2", "--idle-exit", "200ms")
    assert ": gpu_small 2." in worker.greeting
    assert worker.end()[0] == 0
    wrong = lab.run("worker", "lab.py", "--queue", "nope")
    assert wrong.returncode == 2


def test_a_worker_writes_the_end_of_a_task_into_the_prompt_log(lab: Lab, worker: Worker) -> None:
    target = f"file:{lab.folder}/lab.py#lab"
    app: Backburner = load(target)
    with contextlib.closing(open_store(lab.url)) as store:
        logs = PromptLogs(store, app.settings, data_dir(app.settings, store.url))
        log = logs.enter(None, "job-1", "local", "add")
        service = TaskService(store, app.tools, app.settings, target=target)
        task_id = service.submit("add", {"a": 1}, external_id="job-1").task_id
        assert services.wait_until(lambda: log.log_path.exists() and log.log_path.read_bytes() != b"")
        line = json.loads(log.log_path.read_text())
    assert (line["requestId"], line["jobId"], line["prompt"]["status"]) == ("job-1", task_id, "completed")


def test_run_task_runs_that_task_alone_and_once(lab: Lab) -> None:
    other, task_id = lab.submit("add", a=1), lab.submit("add", a=2)
    done = lab.run("run-task", task_id, "--store", lab.url, BACKBURNER_TARGET="")
    assert (done.returncode, done.stderr) == (0, f"{task_id} succeeded\n")
    again = lab.json("run-task", task_id)
    assert again == {"task_id": task_id, "state": "succeeded", "leased": False}
    assert (lab.task(other).state, lab.task(task_id).attempt) == ("queued", 1)


@pytest.mark.slow
def test_run_task_leaves_the_hosts_supervisor_and_its_tasks_alone(lab: Lab) -> None:
    worker = Worker(lab, "--queue", "cpu_standard=1")
    gate = lab.gate()
    running = lab.submit("relax", structure="cu", gate=gate.path)
    lab.wait_for_state(running, "running")
    waiting = lab.submit("add", a=1)
    assert lab.run("run-task", waiting).returncode == 0
    assert lab.task(running).state == "running"
    gate.open()
    lab.wait_for_state(running, "succeeded")
    worker.close()


@pytest.mark.slow
def test_run_task_passes_a_failure_on_as_its_exit_code(lab: Lab) -> None:
    assert lab.run("run-task", lab.submit("boom")).returncode == 1
