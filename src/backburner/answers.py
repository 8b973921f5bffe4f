"""Checking the answers to a task's questions against what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from . import json_text
from .errors import InvalidAnswer, InvalidJson, TooLarge
from .task import Action, InputRequest
from .task_request import check_size

_ACTIONS = get_args(Action)


def check_answers(
    task_id: str,
    asked: Sequence[InputRequest],
    answers: Mapping[str, Mapping[str, Any]],
    *,
    longest_bytes: int,
) -> dict[str, tuple[Action, Any]]:
    """The answers to open questions as (action, content). Raises InvalidAnswer, naming the question.

    An answer to an elicitation says `action`; an answer to another request, such as sampling,
    is its result, and counts as accepted.
    """
    if not isinstance(answers, Mapping):
        raise InvalidAnswer(key="", task_id=task_id, reason="the answers must be an object, by question key")
    open_questions = {question.key: question for question in asked if question.answered_at is None}
    return {
        key: _check_answer(task_id, open_questions[key], answer, longest_bytes)
        for key, answer in answers.items()
        if key in open_questions
    }


def _check_answer(
    task_id: str, question: InputRequest, answer: Any, longest_bytes: int
) -> tuple[Action, Any]:
    def invalid(reason: str) -> InvalidAnswer:
        return InvalidAnswer(key=question.key, task_id=task_id, reason=reason)

    if not isinstance(answer, Mapping):
        raise invalid("it must be an object")
    try:
        check_size("It", json_text.encode(dict(answer), "it"), longest_bytes)
    except (InvalidJson, TooLarge) as error:
        raise invalid(str(error)) from None
    if question.method != "elicitation/create":
        return "accept", dict(answer)
    action: Any = answer.get("action")
    if action not in _ACTIONS:
        raise invalid(f"action must be one of {', '.join(_ACTIONS)}")
    if action != "accept":
        return action, None
    content = answer.get("content")
    schema = question.params.get("requestedSchema")
    if schema:
        from .schema_check import SchemaCheck

        broken = SchemaCheck(schema).complaint(content if content is not None else {})
        if broken is not None:
            raise invalid(broken.message)
    return "accept", content
