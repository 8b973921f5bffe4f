"""Limits and cancellation: time, memory, disk, CPUs, and cancels at any moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from backburner.core.lifecycle import State
from backburner.core.task import Resources
from tests.contracts.engine.base import EngineTests, Work, eventually, is_alive
from tests.contracts.engine_tools import CANCEL_GRACE_S


class Limits(EngineTests):
    def test_a_tool_over_its_time_is_killed_with_all_its_descendants(self, work: Work) -> None:
        began = time.monotonic()
        task_id = work.submit("stay", {"resources": Resources(max_runtime_s=3.0)}, seconds=600)
        eventually(lambda: len(work.lines(task_id)) == 3)
        descendants = [int(line) for line in work.lines(task_id)]
        task = work.end(task_id)
        assert task.state is State.TIMED_OUT
        assert task.error is not None
        assert task.error.type == "timed_out"
        assert time.monotonic() - began >= 3.0
        assert not any(map(is_alive, descendants))
        assert work.trail(task_id) == ["submit", "claim", "start", "time_out"]

    def test_a_tool_knows_its_deadline(self, work: Work) -> None:
        left_s = work.run("time_left", {"resources": Resources(max_runtime_s=100)}).result
        assert 90 < left_s <= 100

    @pytest.mark.parametrize("tool", ["allocate", "allocate_in_children"])
    def test_a_tool_over_its_memory_is_a_named_failure(self, work: Work, tool: str) -> None:
        task = work.run(tool, {"resources": Resources(memory_mb=100)}, mb=160)
        assert task.state is State.FAILED
        assert task.error is not None
        assert task.error.type == "memory_exceeded"

    def test_a_tool_within_its_memory_succeeds(self, work: Work) -> None:
        assert work.run("allocate", {"resources": Resources(memory_mb=100)}, mb=50).result == 50 << 20

    def test_a_limit_is_gone_with_its_task(self, work: Work) -> None:
        work.run("allocate", {"resources": Resources(memory_mb=100), "queue": "one_by_one"}, mb=300)
        assert work.run("allocate", {"queue": "one_by_one"}, mb=300).state is State.SUCCEEDED

    def test_a_tool_over_its_scratch_space_is_a_named_failure_and_leaves_none(self, work: Work) -> None:
        task = work.run("fill_scratch", {"resources": Resources(scratch_mb=5)}, mb=10)
        assert task.error is not None
        assert task.error.type == "scratch_exceeded"
        (scratch,) = work.lines(task.task_id)
        eventually(lambda: not Path(scratch).exists())

    @pytest.mark.parametrize("where", ["artifacts", "beside scratch", "unlinked"])
    def test_scratch_space_is_counted_wherever_the_task_has_it(self, work: Work, where: str) -> None:
        task = work.run("fill", {"resources": Resources(scratch_mb=5)}, mb=10, where=where)
        assert task.error is not None
        assert task.error.type == "scratch_exceeded"

    def test_a_tool_that_has_no_files_is_within_its_scratch_space(self, work: Work) -> None:
        task = work.run("sleep", {"resources": Resources(scratch_mb=5)}, seconds=0.6)
        assert task.state is State.SUCCEEDED, task.error

    @pytest.mark.parametrize("where", ["memfd", "shared memory"])
    def test_files_in_memory_count_as_memory(self, work: Work, where: str) -> None:
        task = work.run("fill", {"resources": Resources(memory_mb=100)}, mb=160, where=where)
        assert task.error is not None
        assert task.error.type == "memory_exceeded"

    def test_a_tool_gets_as_many_cpus_as_it_asked_for(self, work: Work) -> None:
        available = os.sched_getaffinity(0)
        assert len(work.run("cpus", {"resources": Resources(cpu=1)}).result) == 1
        assert set(work.run("cpus").result) == available


IN_LINE = {"queue": "one_by_one"}


class Cancels(EngineTests):
    def test_a_queued_task_is_cancelled_at_once_and_never_runs(self, work: Work) -> None:
        running = work.submit("sleep", IN_LINE, seconds=600)
        work.until_state(running, State.RUNNING)
        waiting = work.submit("sleep", IN_LINE, seconds=600)
        assert work.service.cancel(waiting).task.state is State.CANCELLED
        work.service.cancel(running)
        work.end(running)
        assert work.trail(waiting) == ["submit", "cancel"]

    @pytest.mark.parametrize("tool", ["sleep", "sleep_async"])
    def test_a_tool_that_listens_ends_tidily(self, work: Work, tool: str) -> None:
        task_id = work.submit(tool, seconds=600)
        work.until_log(task_id, "asleep")
        work.service.cancel(task_id, reason="enough")
        task = work.end(task_id)
        assert (task.state, task.cancel_reason) == (State.CANCELLED, "enough")
        assert work.lines(task_id) == ["asleep", "tidied up"]
        assert work.trail(task_id) == ["submit", "claim", "start", "cancel", "stop", "confirm"]

    def test_a_tool_that_does_not_listen_is_killed_with_all_its_descendants(self, work: Work) -> None:
        task_id = work.submit("stay", seconds=600)
        eventually(lambda: len(work.lines(task_id)) == 3)
        descendants = [int(line) for line in work.lines(task_id)]
        work.service.cancel(task_id)
        assert work.end(task_id).state is State.CANCELLED
        assert not any(map(is_alive, descendants))

    def test_a_tool_that_finishes_in_the_grace_time_has_succeeded(self, work: Work) -> None:
        task_id = work.submit("ignore_cancel", seconds=CANCEL_GRACE_S / 5)
        work.until_state(task_id, State.RUNNING)
        work.service.cancel(task_id)
        task = work.end(task_id)
        assert (task.state, task.result) == (State.SUCCEEDED, "done"), task.error

    def test_cancelling_a_finished_task_changes_nothing(self, work: Work) -> None:
        task = work.run("add", a=1)
        assert work.service.cancel(task.task_id).task.state is State.SUCCEEDED
        assert work.trail(task.task_id) == ["submit", "claim", "start", "succeed"]

    def test_cancelling_twice_is_harmless(self, work: Work) -> None:
        task_id = work.submit("sleep", seconds=600)
        work.until_log(task_id, "asleep")
        work.service.cancel(task_id)
        work.service.cancel(task_id)
        assert work.end(task_id).state is State.CANCELLED
        assert work.trail(task_id).count("cancel") == 1

    def test_a_task_that_waits_for_an_answer_can_be_cancelled(self, work: Work) -> None:
        for tool in ("ask_name", "ask_name_async"):
            task_id = work.submit(tool)
            work.until_state(task_id, State.INPUT_REQUIRED)
            work.service.cancel(task_id)
            assert work.end(task_id).state is State.CANCELLED

    def test_the_next_task_knows_nothing_of_a_cancel(self, work: Work) -> None:
        cancelled = work.submit("sleep", IN_LINE, seconds=600)
        work.until_log(cancelled, "asleep")
        work.service.cancel(cancelled)
        assert work.run("sleep", IN_LINE, seconds=0.01).state is State.SUCCEEDED

    def test_a_cancel_at_any_moment_ends_in_exactly_one_way(self, work: Work) -> None:
        for delay_ms in range(0, 20, 2):
            task_id = work.submit("sleep", seconds=0.005)
            time.sleep(delay_ms / 1000)
            work.service.cancel(task_id)
            task = work.end(task_id)
            assert task.state in (State.CANCELLED, State.SUCCEEDED)
            ends = [event for event in work.events(task_id) if event.to_state in ("cancelled", "succeeded")]
            assert len(ends) == 1
