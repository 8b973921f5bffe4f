"""`cancel` and `retry` of all that a filter chooses."""

from __future__ import annotations

import contextlib

import pytest

from tests.integration.cli.conftest import Lab, Worker


@pytest.mark.slow
def test_cancel_acts_on_all_that_a_filter_chooses_and_not_on_a_page(lab: Lab) -> None:
    chosen = lab.submit_many("add", 600, a=1)
    spared, others = lab.submit("relax", structure="cu"), lab.submit("add", a=1, owner="ann")
    words = ["cancel", "--state", "queued", "--tool", "add"]
    refused = lab.run(*words)
    assert refused.returncode == 2
    assert "Cancel 600 tasks?" in refused.stderr
    tried = lab.run(*words, "--dry-run")
    assert tried.stdout.count("tsk_") == 600
    assert lab.task(chosen[0]).state == "queued"
    done = lab.run(*words, "--yes", "--reason", "all wrong")
    assert done.returncode == 0
    assert done.stdout.count(" cancelled") == 600
    assert {lab.task(chosen[0]).state, lab.task(chosen[-1]).state} == {"cancelled"}
    assert lab.task(chosen[-1]).cancel_reason == "all wrong"
    assert {lab.task(spared).state, lab.task(others).state} == {"queued"}
    assert lab.run(*words, "--yes").stderr == "No tasks.\n"


@pytest.mark.slow
def test_retry_acts_on_what_failed_lately(lab: Lab, worker: Worker) -> None:
    failed = [lab.submit("boom") for _ in range(2)]
    cancelled = lab.submit("relax", structure="cu", gate=lab.gate().path)
    lab.run("cancel", cancelled)
    for task_id in failed:
        lab.wait_for_state(task_id, "failed")
    lab.wait_for_state(cancelled, "cancelled")
    assert lab.run("retry", "--since", "2999-01-01", "--yes").stderr == "No tasks.\n"
    assert lab.run("retry", "--since", "1h", "--yes").returncode == 0
    for task_id in failed:
        lab.wait_for_state(task_id, "failed")
        assert lab.task(task_id).attempt == 2
    assert lab.task(cancelled).state == "cancelled"
    assert lab.run("retry", "--state", "cancelled", "--dry-run").stdout.count(cancelled) == 1


@pytest.mark.slow
def test_a_person_is_asked_before_a_filter_acts(lab: Lab) -> None:
    task_id = lab.submit("add", a=1)
    for answer, state in (("n", "queued"), ("y", "cancelled")):
        with contextlib.closing(lab.terminal("cancel", "--active")) as terminal:
            terminal.wait_for(r"Cancel 1 task\?")
            terminal.type(f"{answer}\n")
            assert terminal.end() == 0
        assert lab.task(task_id).state == state


@pytest.mark.slow
def test_ids_and_a_filter_together_or_neither_are_refused(lab: Lab) -> None:
    task_id = lab.submit("add", a=1)
    for words in (["cancel"], ["retry"], ["cancel", task_id, "--active"]):
        done = lab.run(*words)
        assert done.returncode == 2
        assert "not both" in done.stderr
    assert lab.task(task_id).state == "queued"
