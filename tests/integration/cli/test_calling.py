"""`call`, `watch`, `result`: a task from the command line, seen through."""

from __future__ import annotations

import json
import signal
import time

import pytest

from backburner.core.times import from_iso
from tests import services
from tests.integration.cli.conftest import Lab


def test_a_call_prints_the_result_and_nothing_else_to_stdout(manned: Lab) -> None:
    done = manned.run("call", "relax", "structure=cu")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"energy_ev": -130.2, "structure": "cu"}
    assert "reading cu" in done.stderr
    assert "backburner artifacts get tsk_" in done.stderr


@pytest.mark.slow
def test_a_call_starts_a_supervisor_when_there_is_none_and_it_leaves_again(lab: Lab) -> None:
    done = lab.run("call", "add", "a=1")
    assert (done.returncode, done.stdout) == (0, "3\n")


def test_the_json_of_a_call_is_that_of_get_task_result(manned: Lab) -> None:
    outcome = manned.json("call", "relax", "structure=cu")
    assert outcome.keys() == {"task_id", "state", "result", "artifacts", "error", "completed_at"}
    assert outcome["state"] == "succeeded"
    assert outcome["error"] is None
    (artifact,) = outcome["artifacts"]
    assert {"artifact_id", "name", "kind", "size_bytes", "sha256"} <= artifact.keys()
    assert "path" not in artifact


def test_a_task_that_failed_gives_exit_code_1_and_says_why(manned: Lab) -> None:
    done = manned.run("call", "boom")
    assert done.returncode == 1
    assert "tool_error: ValueError: no such element" in done.stderr
    assert done.stdout == ""


def test_inputs_are_read_by_the_schema_of_the_tool(manned: Lab) -> None:
    (manned.folder / "inputs.json").write_text('{"structure": "from a file"}')
    assert manned.json("call", "relax", "structure=42")["result"]["structure"] == "42"
    assert manned.json("call", "relax", "-i", "@inputs.json")["result"]["structure"] == "from a file"
    assert manned.json("call", "add", "a:=1", "b=40")["result"] == 41
    assert manned.run("call", "add", "-i", "-", stdin='{"a": 1, "b": 1}').stdout == "2\n"


def test_inputs_that_do_not_fit_are_a_usage_error(lab: Lab) -> None:
    for words, reason in (
        (["add", "a=x"], "is not of type 'integer'"),
        (["add", "a"], "is not key=value"),
        (["nope"], "There is no slow tool named 'nope'"),
    ):
        done = lab.run("call", "--detach", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert reason in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.slow
def test_submit_returns_at_once_and_the_result_can_be_waited_for(manned: Lab) -> None:
    gate = manned.gate()
    submitted = manned.json(
        "call", "--detach", "relax", "structure=cu", str(gate), "--tag", "project:x", "--priority", "5"
    )
    wanted = {"task_id", "state", "queue", "position", "submitted_at", "poll_after_ms"}
    assert wanted <= submitted.keys()
    task_id = submitted["task_id"]
    assert manned.run("result", task_id).returncode == 5
    assert manned.run("result", task_id, "--wait", "--timeout", "10ms").returncode == 5
    gate.open()
    assert manned.json("result", task_id, "--wait")["result"]["structure"] == "cu"
    shown = manned.json("show", task_id)
    assert (shown["tags"], shown["priority"]) == (["project:x"], 5)


@pytest.mark.slow
def test_a_task_that_runs_longer_than_its_time_to_live_keeps_its_result(manned: Lab) -> None:
    gate = manned.gate()
    submitted = manned.json("call", "--detach", "relax", "structure=cu", str(gate), "--ttl", "3s")
    task_id = submitted["task_id"]
    manned.wait_for_state(task_id, "running")
    assert manned.json("show", task_id)["expires_at"] is None
    end_of_ttl = from_iso(submitted["submitted_at"]) + 3_000
    assert services.wait_until(lambda: time.time() * 1000 > end_of_ttl)
    gate.open()
    manned.wait_for_state(task_id, "succeeded")
    manned.run("prune")
    assert manned.json("result", task_id)["result"]["structure"] == "cu"
    ended = manned.json("show", task_id)
    assert from_iso(ended["expires_at"]) - from_iso(ended["completed_at"]) == 3_000


@pytest.mark.slow
def test_the_same_idempotency_key_gives_the_same_task(manned: Lab) -> None:
    first, again = (manned.json("call", "--detach", "add", "a=1", "--idempotency-key", "k") for _ in "12")
    assert first["task_id"] == again["task_id"]
    assert (first["created"], again["created"]) == (True, False)
    assert manned.run("call", "--detach", "add", "a=2", "--idempotency-key", "k").returncode == 2


@pytest.mark.slow
def test_watching_ends_after_its_time_and_the_task_goes_on(manned: Lab) -> None:
    gate = manned.gate()
    done = manned.run("call", "relax", "structure=cu", str(gate), "--timeout", "300ms")
    assert done.returncode == 5
    assert "it continues" in done.stderr
    (task,) = manned.json("ls", "--active", "--tool", "relax")["tasks"]
    gate.open()
    assert manned.json("watch", task["task_id"])["state"] == "succeeded"


def test_an_interrupt_loses_nothing_and_says_how_to_come_back(manned: Lab) -> None:
    gate = manned.gate()
    calling = manned.start("call", "relax", "structure=cu", str(gate))
    assert calling.stderr is not None
    said = ""
    while "reading cu" not in said:
        line = calling.stderr.readline()
        assert line, said
        said += line
    calling.send_signal(signal.SIGINT)
    out, rest = calling.communicate(timeout=30)
    assert (calling.returncode, out) == (130, "")
    (command,) = [line.split(":", 1)[1].split() for line in rest.splitlines() if "come back:" in line]
    assert command[:2] == ["backburner", "watch"]
    gate.open()
    assert manned.run(*command[1:]).returncode == 0


@pytest.mark.slow
def test_a_question_is_shown_and_can_be_answered(manned: Lab) -> None:
    task_id = manned.submit("ask")
    manned.wait_for_state(task_id, "input_required")
    asked = manned.run("answer", task_id)
    assert asked.returncode == 2
    assert "The task asks: Which element?" in asked.stderr
    assert f"backburner answer {task_id} element=…" in asked.stderr
    assert manned.run("answer", task_id, "element:=3").returncode == 2
    assert manned.json("answer", task_id, "element=29")["state"] in ("running", "succeeded")
    assert manned.json("result", task_id, "--wait")["result"] == "accept {'element': '29'}"
    assert manned.run("answer", task_id, "element=29").returncode == 2


@pytest.mark.slow
def test_a_question_can_be_declined(manned: Lab) -> None:
    task_id = manned.submit("ask")
    assert services.wait_until(lambda: manned.run("answer", task_id, "--decline").returncode == 0)
    assert manned.run("result", task_id, "--wait").stdout == "decline None\n"
