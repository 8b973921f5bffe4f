"""How a task ends, and what is known about it then."""

from __future__ import annotations

import json

import pytest

from ...lifecycle import State
from ...task import Answer, Caller
from ...task_request import TaskOptions
from ...tools import tool_from_function
from ..engine_tools import MAX_RESULT_BYTES
from .base import EngineTests, Work


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
