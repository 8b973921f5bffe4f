"""Outcomes: results, errors, retries, and isolation of one task from the next."""

from __future__ import annotations

import json

import pytest

from backburner.core.lifecycle import State
from backburner.core.task import Answer, Caller, TaskOptions
from backburner.tools.execution import MAX_RESULT_BYTES
from backburner.tools.spec import tool_from_function
from tests.contracts.engine.base import EngineTests, Work, eventually, is_alive


class Outcomes(EngineTests):
    def test_a_tool_that_returns_succeeds(self, work: Work) -> None:
        task = work.run("add", a=1)
        assert (task.state, task.result, task.error) == (State.SUCCEEDED, {"sum": 3}, None)
        assert work.trail(task.task_id) == ["submit", "claim", "start", "succeed"]
        assert task.metrics["wall_s"] >= 0

    def test_an_async_tool_that_returns_succeeds(self, work: Work) -> None:
        assert work.run("add_later", a=1, b=2).result == 3

    def test_a_tool_is_told_what_it_is_part_of(self, work: Work) -> None:
        told: TaskOptions = {
            "owner": "ann",
            "tags": ["project:x"],
            "meta": {"ticket": 7},
            "answers": {"colour": Answer("accept", {"name": "red"})},
            "caller": Caller("shop", "https://issuer", "ann", ("tasks",)),
        }
        task_id = work.service.submit("whoami", {}, **told).task_id
        assert work.service.wait(task_id, 30, owner="ann").task.result == {
            "task_id": task_id,
            "attempt": 1,
            "owner": "ann",
            "tags": ["project:x"],
            "meta": {"ticket": 7},
            "answers": {"colour": {"action": "accept", "content": {"name": "red"}}},
            "caller": {
                "client_id": "shop",
                "issuer": "https://issuer",
                "subject": "ann",
                "scopes": ["tasks"],
            },
        }

    @pytest.mark.parametrize("tool", ["fail", "fail_later"])
    def test_a_tool_that_raises_fails_with_its_traceback(self, work: Work, tool: str) -> None:
        task = work.run(tool, message="it is not there")
        assert task.state is State.FAILED
        assert task.error is not None
        assert task.error.type == "tool_error"
        assert task.error.exception == "LookupError"
        assert task.error.message == "it is not there"
        assert "raise LookupError(message)" in task.error.details
        assert "execution.py" not in task.error.details

    def test_an_exception_that_cannot_be_shown_is_still_a_failure(self, work: Work) -> None:
        task = work.run("fail_unspeakably")
        assert task.error is not None
        assert (task.error.type, task.error.message) == ("tool_error", "Unspeakable")

    def test_a_protocol_error_keeps_its_code_and_data(self, work: Work) -> None:
        error = work.run("answer_with_protocol_error").error
        assert error is not None
        assert error.type == "protocol_error"
        assert error.data == {
            "code": -32042,
            "message": "go there first",
            "data": {"url": "https://example.org/"},
        }

    @pytest.mark.parametrize("how", ["sys.exit", "interrupt"])
    def test_a_tool_that_wants_to_end_its_process_fails(self, work: Work, how: str) -> None:
        task = work.run("end_badly", how=how)
        assert task.state is State.FAILED
        assert task.error is not None
        assert task.error.type == "tool_error"

    @pytest.mark.parametrize(
        ("how", "words"), [("os._exit", "exit code 3"), ("segfault", "SIGSEGV"), ("kill", "SIGKILL")]
    )
    def test_a_tool_that_takes_its_process_down_is_a_lost_worker(
        self, work: Work, how: str, words: str
    ) -> None:
        task = work.run("end_badly", how=how)
        assert task.state is State.FAILED
        assert task.error is not None
        assert task.error.type == "worker_lost"
        assert words in task.error.message

    @pytest.mark.parametrize("what", ["object", "nan", "nul", "surrogate", "deep", "bytes"])
    def test_a_result_that_is_not_json_is_a_named_failure(self, work: Work, what: str) -> None:
        error = work.run("give", what=what).error
        assert error is not None
        assert error.type == "result_not_serialisable"

    def test_a_result_that_stands_for_json_becomes_it(self, work: Work) -> None:
        assert work.run("give", what="path").result == "/tmp/x"
        assert work.run("give", what="set").result == [1]

    def test_a_large_result_becomes_an_artifact_with_a_preview(self, work: Work) -> None:
        task = work.run("give_much", size=MAX_RESULT_BYTES)
        assert task.state is State.SUCCEEDED
        (artifact,) = work.store.artifacts(task.task_id)
        assert task.result["truncated"]
        assert task.result["artifact_id"] == artifact.artifact_id
        assert task.result["preview"].startswith("xxx")
        kept = (work.app.data_dir / "tasks" / artifact.path).read_text()
        assert json.loads(kept) == "x" * MAX_RESULT_BYTES

    def test_a_tool_that_the_runners_do_not_have_is_a_named_failure(self, work: Work) -> None:
        def only_here() -> None: ...

        if "only_here" not in work.app.tools:
            work.app.add_tool(tool_from_function(only_here))
        error = work.run("only_here").error
        assert error is not None
        assert error.type == "unknown_tool"
        assert "only_here" in error.message


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
