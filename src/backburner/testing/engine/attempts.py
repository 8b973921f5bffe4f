"""Trying again, and what is handed on."""

from __future__ import annotations

import pytest

from ...lifecycle import State
from .base import EngineTests, Work


class Attempts(EngineTests):
    def test_a_failure_that_the_policy_names_is_tried_again_after_a_growing_wait(self, work: Work) -> None:
        task = work.run("succeed_at", attempt=3)
        assert (task.state, task.result, task.attempt) == (State.SUCCEEDED, 3, 3)
        assert work.trail(task.task_id) == [
            *("submit", "claim", "start", "retry"),
            *("claim", "start", "retry"),
            *("claim", "start", "succeed"),
        ]
        events = work.events(task.task_id)
        failed = [event for event in events if event.signal == "retry"]
        again = [event for event in events if event.signal == "claim"][1:]
        waits = [claim.ts - retry.ts for retry, claim in zip(failed, again, strict=True)]
        assert waits[0] >= 200
        assert waits[1] >= 400

    def test_after_the_last_attempt_the_task_has_failed(self, work: Work) -> None:
        task = work.run("succeed_at", attempt=4)
        assert (task.state, task.attempt) == (State.FAILED, 3)
        assert [attempt.outcome for attempt in work.store.attempts(task.task_id)] == ["failed"] * 3

    @pytest.mark.parametrize("tool", ["by_name_of_base", "by_class", "by_function", "by_any_of_a_list"])
    def test_a_policy_names_exceptions_by_a_base_a_class_or_a_function(self, work: Work, tool: str) -> None:
        task = work.run(tool, error="reset")
        assert (task.state, task.result) == (State.SUCCEEDED, 2)
        task = work.run(tool, error="other")
        assert (task.state, task.attempt) == (State.FAILED, 1)

    @pytest.mark.parametrize("tool", ["by_function_that_raises", "by_function_that_ends"])
    def test_a_policy_s_function_that_raises_is_told_beside_the_failure_and_tries_no_more(
        self, work: Work, tool: str
    ) -> None:
        task = work.run(tool, error="reset")
        assert (task.state, task.attempt) == (State.FAILED, 1)
        assert task.error is not None
        assert (task.error.exception, task.error.message) == ("ConnectionResetError", "reset by peer")
        assert "Retry(on=…) could not say" in task.error.details
        assert "raise ConnectionResetError" in task.error.details

    def test_a_policy_s_function_is_kept_by_its_name(self, work: Work) -> None:
        assert work.run("by_any_of_a_list", error="reset").retry.on == (
            "worker_lost",
            "ZeroDivisionError",
            "_is_reset()",
        )

    def test_a_checkpoint_is_handed_to_the_next_attempt(self, work: Work) -> None:
        assert work.run("count_on").result == [1, 2, 3]

    def test_a_task_that_ended_badly_can_be_run_again(self, work: Work) -> None:
        task = work.run("fail", message="no")
        work.service.retry(task.task_id)
        task = work.until(task.task_id, lambda task: task.attempt == 2 and task.finished).task
        assert task.state is State.FAILED
