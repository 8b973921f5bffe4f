"""Cancelling, at every moment of a task's life."""

from __future__ import annotations

import time

import pytest

from ...lifecycle import State
from ..engine_tools import CANCEL_GRACE_S
from .base import EngineTests, Work, eventually, is_alive

IN_LINE = {"queue": "one_by_one"}


class Cancelling(EngineTests):
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
