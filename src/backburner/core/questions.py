"""Validation of a task's questions, and of the answers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from ..errors import InvalidAnswer, InvalidJson, InvalidRequest, TooLarge
from . import json_text
from .requests import check_size
from .task import Action, InputRequest

#: The requests that a task can make of a client.
ASKABLE = ("elicitation/create", "sampling/createMessage", "roots/list")
_ACTIONS = get_args(Action)


def check_question(method: Any, params: Any) -> None:
    """Raise InvalidRequest for a question that no client and no page could show."""
    wrong = _wrong_in(method, params)
    if wrong is not None:
        raise InvalidRequest(reason=f"a question cannot be asked: {wrong}")


def _wrong_in(method: Any, params: Any) -> str | None:
    if method not in ASKABLE:
        return f"{str(method)[:80]!r} is not one of {', '.join(ASKABLE)}"
    if not isinstance(params, Mapping):
        return "the parameters are not an object"
    if method == "elicitation/create":
        if not isinstance(params.get("message"), str):
            return "its message is not text"
        if params.get("mode") == "url":
            return None if isinstance(params.get("url"), str) else "its url is not text"
        return _wrong_in_schema(params.get("requestedSchema"))
    if method == "sampling/createMessage":
        messages = params.get("messages")
        if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
            return "its messages are not a list of objects"
    return None


def _wrong_in_schema(schema: Any) -> str | None:
    if not isinstance(schema, Mapping):
        return "its requestedSchema is not an object"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not all(
        isinstance(one, Mapping) for one in properties.values()
    ):
        return "the properties of its requestedSchema are not objects"
    if not isinstance(required, list | tuple) or not all(isinstance(one, str) for one in required):
        return "what its requestedSchema requires is not a list of names"
    return None


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
        from .schema import SchemaCheck

        broken = SchemaCheck(schema).complaint(content if content is not None else {})
        if broken is not None:
            raise invalid(broken.message)
    return "accept", content
