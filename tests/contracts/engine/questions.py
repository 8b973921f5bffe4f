"""Questions to the client."""

from __future__ import annotations

from typing import Any

import pytest

from backburner.core.lifecycle import State
from backburner.errors import InvalidAnswer
from tests.contracts.engine.base import EngineTests, Work, eventually


class Questions(EngineTests):
    def asked(self, work: Work, task_id: str) -> list[str]:
        """The keys of the open questions, once there are some."""
        status = work.until_state(task_id, State.INPUT_REQUIRED)
        return [question.key for question in status.questions]

    @pytest.mark.parametrize("tool", ["ask_name", "ask_name_async"])
    @pytest.mark.parametrize(
        ("reply", "result"),
        [
            (
                {"action": "accept", "content": {"name": "Ann"}},
                {"action": "accept", "content": {"name": "Ann"}, "accepted": True},
            ),
            ({"action": "decline"}, {"action": "decline", "content": None, "accepted": False}),
            ({"action": "cancel"}, {"action": "cancel", "content": None, "accepted": False}),
        ],
    )
    def test_a_tool_gets_the_answer(
        self, work: Work, tool: str, reply: dict[str, Any], result: dict[str, Any]
    ) -> None:
        task_id = work.submit(tool)
        (key,) = self.asked(work, task_id)
        work.service.answer_input(task_id, {key: reply})
        assert work.end(task_id).result == result
        assert work.trail(task_id) == ["submit", "claim", "start", "ask", "answer", "succeed"]

    def test_an_answer_that_does_not_fit_is_refused_and_the_task_waits_on(self, work: Work) -> None:
        task_id = work.submit("ask_name")
        (key,) = self.asked(work, task_id)
        with pytest.raises(InvalidAnswer):
            work.service.answer_input(task_id, {key: {"action": "accept", "content": {"name": 3}}})
        assert self.asked(work, task_id) == [key]
        work.service.answer_input(task_id, {key: {"action": "accept", "content": {"name": "Ann"}}})
        assert work.end(task_id).state is State.SUCCEEDED

    def test_several_questions_are_answered_one_by_one(self, work: Work) -> None:
        task_id = work.submit("ask_two")
        first, last = self.asked(work, task_id)
        status = work.service.answer_input(task_id, {first: {"action": "accept", "content": {"name": "Ann"}}})
        assert [question.key for question in status.questions] == [last]
        work.service.answer_input(task_id, {last: {"action": "decline"}})
        assert work.end(task_id).result == {"first": ["accept", {"name": "Ann"}], "last": ["decline", None]}

    def test_a_tool_may_ask_again(self, work: Work) -> None:
        task_id = work.submit("ask_twice")
        seen: list[str] = []
        for name in ("Ann", "Bob"):
            (key,) = eventually(
                lambda: {question.key for question in work.service.status(task_id).questions} - {*seen}
            )
            seen.append(key)
            work.service.answer_input(task_id, {key: {"action": "accept", "content": {"name": name}}})
        assert work.end(task_id).result == [{"name": "Ann"}, {"name": "Bob"}]

    def test_a_later_attempt_asks_anew(self, work: Work) -> None:
        task_id = work.submit("ask_then_fail_once")
        (key,) = self.asked(work, task_id)
        work.service.answer_input(task_id, {key: {"action": "accept", "content": {"name": "Ann"}}})
        status = work.until(task_id, lambda task: task.attempt == 2 and task.state is State.INPUT_REQUIRED)
        (again,) = [question.key for question in status.questions]
        assert again != key
        work.service.answer_input(task_id, {again: {"action": "accept", "content": {"name": "Bob"}}})
        assert work.end(task_id).result == {"name": "Bob"}

    def test_threads_that_ask_at_the_same_moment_each_get_their_own_answer(self, work: Work) -> None:
        task_id = work.submit("ask_from_two_threads")
        work.until(task_id, lambda task: len(work.store.input_requests(task.task_id)) == 2)
        answers = {
            question.key: {"action": "accept", "content": {"name": question.params["message"]}}
            for question in work.service.status(task_id).questions
        }
        work.service.answer_input(task_id, answers)
        assert work.end(task_id).result == {"Ann": "Ann", "Bob": "Bob"}

    @pytest.mark.parametrize(
        ("default", "result"),
        [
            ({"name": "Ann"}, {"action": "accept", "content": {"name": "Ann"}}),
            (None, {"action": "cancel", "content": None}),
        ],
    )
    def test_a_question_that_nobody_answers_in_time_is_over(
        self, work: Work, default: dict[str, str] | None, result: dict[str, Any]
    ) -> None:
        task_id = work.submit("ask_for_a_while", timeout=0.1, default=default)
        assert work.end(task_id).result == result
        assert work.service.status(task_id).questions == ()
        assert work.trail(task_id) == ["submit", "claim", "start", "ask", "answer", "succeed"]

    def test_each_of_several_questions_has_its_own_default(self, work: Work) -> None:
        task = work.run("ask_two_for_a_while")
        assert task.result == {"first": ["accept", {"name": "Ann"}], "last": ["cancel", None]}

    def test_an_answer_in_time_counts_and_not_the_default(self, work: Work) -> None:
        task_id = work.submit("ask_for_a_while", timeout=60, default={"name": "Ann"})
        (key,) = self.asked(work, task_id)
        work.service.answer_input(task_id, {key: {"action": "accept", "content": {"name": "Bob"}}})
        assert work.end(task_id).result == {"action": "accept", "content": {"name": "Bob"}}

    def test_a_default_that_is_no_answer_is_refused(self, work: Work) -> None:
        error = work.run("ask_for_a_while", timeout=60, default={"name": 3}).error
        assert error is not None
        assert "does not fit its schema" in error.message
