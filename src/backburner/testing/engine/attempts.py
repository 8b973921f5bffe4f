"""Trying again, and what is handed on."""

from __future__ import annotations

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

    def test_a_checkpoint_is_handed_to_the_next_attempt(self, work: Work) -> None:
        assert work.run("count_on").result == [1, 2, 3]

    def test_a_task_that_ended_badly_can_be_run_again(self, work: Work) -> None:
        task = work.run("fail", message="no")
        work.service.retry(task.task_id)
        task = work.until(task.task_id, lambda task: task.attempt == 2 and task.finished).task
        assert task.state is State.FAILED
