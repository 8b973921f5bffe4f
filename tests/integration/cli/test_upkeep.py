"""`status`, `tools`, `migrate`, `prune` and `doctor`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import sqlite3
from typing import Any

import pytest

from backburner import open_store
from backburner.core.reports import Logged, Started, Succeeded
from backburner.core.task import LogLine
from tests import services
from tests.integration.cli.conftest import Lab, Worker


def findings(report: dict[str, Any], level: str) -> dict[str, str]:
    """What doctor found at that level: its messages by check."""
    return {one["check"]: one["message"] for one in report["findings"] if one["level"] == level}


@pytest.mark.slow
def test_status_shows_queues_workers_states_and_runtimes(lab: Lab, worker: Worker) -> None:
    gate = lab.gate()
    running = lab.submit("relax", structure="cu", gate=gate.path)
    lab.wait_for_state(running, "running")
    lab.wait_for_state(lab.submit("add", a=1), "succeeded")
    shown = lab.json("status")
    queues, workers = {queue["queue"]: queue for queue in shown["queues"]}, shown["workers"]
    gate.open()
    assert (queues["cpu_standard"]["queued"], queues["cpu_standard"]["running"]) == (0, 1)
    with_workers = {name for name, queue in queues.items() if queue["workers"]}
    assert {worker["queue"] for worker in workers} == with_workers
    assert all(worker["alive"] for worker in workers)
    assert (shown["states"]["running"], shown["states"]["succeeded"]) == (1, 1)
    assert [task["task_id"] for task in shown["tasks"]] == [running]
    assert [task["tool_name"] for task in shown["latest"]] == ["add"]
    assert [tool["tool_name"] for tool in shown["tools"]] == ["add"]
    lab.wait_for_state(running, "succeeded")
    text = lab.run("status").stdout
    assert all(part in text for part in ("cpu_heavy", "64 workers", "succeeded 2", "MEDIAN"))


def test_tools_shows_inputs_and_descriptions(lab: Lab) -> None:
    (relax,) = [tool for tool in lab.json("tools")["tools"] if tool["tool_name"] == "relax"]
    assert relax["input_schema"]["required"] == ["structure"]
    assert "structure (gate)" in lab.run("tools").stdout


def test_migrate_makes_a_store(lab: Lab) -> None:
    done = lab.json("migrate", "--store", "sqlite:///new.db", BACKBURNER_TARGET="")
    assert done["version"] >= 1
    assert (lab.folder / "new.db").exists()


@pytest.mark.slow
def test_prune_forgets_finished_tasks_and_their_files(lab: Lab, worker: Worker) -> None:
    task_id = lab.submit("relax", structure="cu")
    lab.wait_for_state(task_id, "succeeded")
    assert lab.json("prune", "--older-than", "1h")["forgotten"] == []
    assert lab.json("prune", "--older-than", "0", "--dry-run")["forgotten"] == [task_id]
    assert (lab.folder / "lab.db.d/tasks" / task_id).exists()
    assert lab.json("prune", "--older-than", "0")["forgotten"] == [task_id]
    assert not (lab.folder / "lab.db.d/tasks" / task_id).exists()
    assert lab.run("show", task_id).returncode == 3


def log_much(lab: Lab, *, task_id: str) -> None:
    """Have a task done that wrote three megabytes which cannot be compressed."""
    noise = random.Random(1)
    lines = [LogLine(n, n, "stdout", "info", noise.randbytes(2000).hex()) for n in range(1, 1001)]
    with contextlib.closing(open_store(lab.url)) as store:
        lease = store.claim_task(task_id, "w1")
        assert lease is not None
        store.report(lease, Started(), Logged(tuple(lines)), Succeeded("1"))


@pytest.mark.slow
def test_prune_gives_the_disk_back_and_says_how_much(lab: Lab) -> None:
    log_much(lab, task_id=lab.submit("add", a=1))
    log_much(lab, task_id=lab.submit("add", a=1))
    dry = lab.json("prune", "--older-than", "0", "--dry-run")
    assert dry["freed_bytes"] == 0
    assert dry["store_bytes"] > 4_000_000
    done = lab.json("prune", "--older-than", "0")
    assert len(done["forgotten"]) == 2
    assert done["freed_bytes"] > 4_000_000
    assert sum(file.stat().st_size for file in lab.folder.glob("lab.db*") if file.is_file()) < 500_000
    assert "The store has " in lab.run("prune").stderr


def test_doctor_finds_nothing_in_a_healthy_place(lab: Lab, worker: Worker) -> None:
    report = lab.json("doctor")
    assert report["healthy"] is True
    checks = {"versions", "app", "store", "disk", "clock", "isolation", "supervisor", "leases", "queues"}
    assert findings(report, "ok").keys() == checks
    assert "this machine supports no_new_privileges" in findings(report, "ok")["isolation"]


def test_doctor_sees_what_confines_tools_and_what_this_machine_cannot_give(lab: Lab) -> None:
    confined = {"BACKBURNER_ISOLATION__NO_NEW_PRIVILEGES": "true"}
    assert (
        "no_new_privileges confines tools"
        in findings(lab.json("doctor", code=0, **confined), "ok")["isolation"]
    )
    nobody = {"BACKBURNER_ISOLATION__USERS": "nobody-of-that-name"}
    assert "isolation.users" in findings(lab.json("doctor", code=4, **nobody), "problem")["isolation"]


@pytest.mark.slow
def test_doctor_sees_the_leases_of_a_dead_supervisor_at_once(lab: Lab) -> None:
    worker = Worker(lab)
    task_id = lab.submit("relax", structure="cu", gate=lab.gate().path)
    lab.wait_for_state(task_id, "running")
    worker.process.send_signal(signal.SIGKILL)
    worker.end()
    report = lab.json("doctor", code=4)
    assert task_id in findings(report, "problem")["leases"]
    (advice,) = [one["advice"] for one in report["findings"] if one["check"] == "leases"]
    assert advice.endswith(f"backburner worker {lab.folder / 'lab.py'}")


QUICK = {"BACKBURNER_SUPERVISOR__HEARTBEAT_S": "0.2", "BACKBURNER_SUPERVISOR__LEASE_GRACE_S": "1"}


@pytest.mark.slow
def test_doctor_sees_a_supervisor_that_is_stopped(lab: Lab, worker: Worker) -> None:
    worker.process.send_signal(signal.SIGSTOP)
    try:
        found = findings(lab.json("doctor", code=4), "problem")
    finally:
        worker.process.send_signal(signal.SIGCONT)
    assert f"pid {worker.process.pid} holds the lock, but is stopped by a signal" in found["supervisor"]
    assert lab.json("doctor")["healthy"] is True


@pytest.mark.slow
def test_doctor_names_the_process_that_keeps_the_store_locked(lab: Lab) -> None:
    lab.environment.update(QUICK)
    worker = Worker(lab)

    def trouble() -> dict[str, str]:
        return findings(json.loads(lab.run("doctor", "--json").stdout), "problem")

    with (lab.folder / "lab.db.d" / "write.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = f"process {os.getpid()} has held its write lock"
        assert services.wait_until(lambda: words in trouble().get("supervisor", ""))
        assert words in trouble()["store"]
    assert services.wait_until(lambda: not trouble())
    worker.close()


@pytest.mark.slow
def test_doctor_sees_tasks_that_nobody_works_on_and_queues_that_are_full(lab: Lab) -> None:
    full = {"BACKBURNER_QUEUES": '{"cpu_standard": {"workers": 0, "max_length": 1}}'}
    worker = Worker(lab, "--queue", "gpu_small")
    lab.submit("add", a=1)
    queued = findings(lab.json("doctor", code=4, **full), "problem")["queues"]
    assert "waiting in cpu_standard, which has no worker" in queued
    refused = lab.run("call", "--detach", "add", "a=1", **full)
    worker.close()
    assert refused.returncode == 4
    found = findings(lab.json("doctor", code=4, **full), "problem")
    assert found["supervisor"] == "1 task waiting, and no supervisor is running"


@pytest.mark.slow
def test_doctor_says_what_to_do_with_a_store_or_an_app_that_cannot_be_used(lab: Lab) -> None:
    lab.run("migrate")
    with sqlite3.connect(lab.folder / "lab.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    too_new = lab.run("doctor")
    assert too_new.returncode == 4
    assert "Upgrade Backburner" in too_new.stdout
    (lab.folder / "lab.py").write_text("import nothing_like_this")
    broken = lab.run("doctor")
    assert broken.returncode == 4
    assert "nothing_like_this" in broken.stdout
