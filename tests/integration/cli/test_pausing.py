"""`queue pause`, `queue resume`: no task of a queue begins meanwhile."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Lab, Worker


@pytest.mark.slow
def test_a_queue_is_paused_and_resumed(lab: Lab, worker: Worker) -> None:
    assert lab.json("queue", "pause", "cpu_standard") == {"queue": "cpu_standard", "paused": True}
    task_id = lab.json("call", "--detach", "add", "a=1")["task_id"]
    paused = [one["queue"] for one in lab.json("status")["queues"] if one["paused_at"]]
    assert paused == ["cpu_standard"]
    assert lab.json("show", task_id)["waits_for"] == "queue cpu_standard is paused"
    lab.run("queue", "resume", "cpu_standard")
    assert lab.json("watch", task_id)["state"] == "succeeded"
    assert "no queue named 'none'" in lab.run("queue", "pause", "none").stderr
