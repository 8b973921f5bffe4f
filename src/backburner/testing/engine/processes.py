"""What one task leaves in its process must not reach the next."""

from __future__ import annotations

from ...lifecycle import State
from .base import EngineTests, Work, eventually, is_alive

IN_LINE = {"queue": "one_by_one"}


class Processes(EngineTests):
    def test_a_fresh_task_gets_a_process_of_its_own(self, work: Work) -> None:
        pids = [work.run("fresh_pid", IN_LINE).result for _ in range(3)]
        assert len(set(pids)) == 3
        assert work.run("pid", IN_LINE).result not in pids

    def test_a_child_that_a_tool_leaves_behind_ends_with_its_task(self, work: Work) -> None:
        left = work.run("leave_child", IN_LINE)
        assert left.state is State.SUCCEEDED
        after = work.run("sleep", IN_LINE, seconds=0.1)
        assert work.lines(after.task_id) == ["asleep"]
        eventually(lambda: not is_alive(left.result))

    def test_a_thread_that_a_tool_leaves_behind_ends_with_its_task(self, work: Work) -> None:
        for tool in ("leave_thread", "leave_coroutine"):
            assert work.run(tool, IN_LINE).state is State.SUCCEEDED
            after = work.run("sleep", IN_LINE, seconds=0.1)
            assert work.lines(after.task_id) == ["asleep"]

    def test_a_tool_that_closes_its_output_harms_only_itself(self, work: Work) -> None:
        closed = work.run("close_output", IN_LINE)
        assert closed.state is State.SUCCEEDED
        assert work.lines(closed.task_id) == ["before"]
        after = work.run("say", IN_LINE, words="still here")
        assert work.lines(after.task_id) == ["still here"]

    def test_a_tool_that_holds_the_gil_is_not_lost_and_delays_nobody(self, work: Work) -> None:
        holding = work.submit("hold_the_gil", seconds=1.5)
        work.until_state(holding, State.RUNNING)
        while not work.service.status(holding).task.finished:
            assert work.run("add", IN_LINE, a=1).state is State.SUCCEEDED
            cancelled = work.submit("sleep", IN_LINE, seconds=60)
            work.service.cancel(cancelled)
            assert work.end(cancelled).state is State.CANCELLED
        task = work.end(holding)
        assert (task.state, task.result, task.attempt) == (State.SUCCEEDED, "done", 1)
