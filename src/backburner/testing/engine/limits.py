"""Time, memory, disk and CPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ...lifecycle import State
from ...task import Resources
from .base import EngineTests, Work, eventually, is_alive


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
