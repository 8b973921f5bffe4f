"""What cannot be taken is refused with a stable code, and nothing is written."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from backburner.core.reports import Asked
from backburner.core.task import Answer, InputRequest, Resources, new_task_id
from backburner.errors import BackburnerError, InvalidInputs, InvalidRequest
from backburner.service.tasks import TaskService
from backburner.store.protocol import Store, TaskQuery
from backburner.tools.spec import ToolSpec
from tests.unit.service.conftest import Worker

Call = Callable[[TaskService], Any]


def tampered(service: TaskService, change: Callable[[str], str]) -> object:
    for _ in range(2):
        service.submit("add", {"a": 1})
    cursor = service.list(limit=1).next_cursor
    assert cursor is not None
    return service.list(cursor=change(cursor))


def with_another_seq(cursor: str) -> str:
    body, _, signature = cursor.partition(".")
    forged = base64.urlsafe_b64encode(json.dumps([1, "local"]).encode()).decode().rstrip("=")
    assert forged != body
    return f"{forged}.{signature}"


DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]

REFUSED: dict[str, tuple[str, Call]] = {
    "an unknown tool": ("unknown_tool", lambda s: s.submit("nope", {})),
    "a tool name that is no text": ("unknown_tool", lambda s: s.submit(["add"], {})),  # type: ignore[arg-type]
    "inputs that break the schema": ("invalid_inputs", lambda s: s.submit("add", {"a": "x"})),
    "a missing input": ("invalid_inputs", lambda s: s.submit("add", {})),
    "an input that is not in the schema": ("invalid_inputs", lambda s: s.submit("add", {"a": 1, "c": 2})),
    "inputs that are no object": ("invalid_request", lambda s: s.submit("add", [1])),  # type: ignore[arg-type]
    "inputs over the limit": ("too_large", lambda s: s.submit("any", {"x": "é" * 5000})),
    "inputs without end": ("invalid_json", lambda s: s.submit("any", {"x": DEEP})),
    "a negative time to live": ("invalid_request", lambda s: s.submit("add", {"a": 1}, ttl_s=-1)),
    "a time to live of nothing": ("invalid_request", lambda s: s.submit("add", {"a": 1}, ttl_s=0)),
    "a time to live that is no number": (
        "invalid_request",
        lambda s: s.submit("add", {"a": 1}, ttl_s=float("nan")),
    ),
    "an unknown queue": ("unknown_queue", lambda s: s.submit("add", {"a": 1}, queue="nope")),
    "a queue that is no text": ("unknown_queue", lambda s: s.submit("add", {"a": 1}, queue=["x"])),  # type: ignore[arg-type]
    "a tag of 10 kB": ("too_large", lambda s: s.submit("add", {"a": 1}, tags=["x" * 10_240])),
    "an empty tag": ("invalid_request", lambda s: s.submit("add", {"a": 1}, tags=[""])),
    "too many tags": (
        "invalid_request",
        lambda s: s.submit("add", {"a": 1}, tags=[str(n) for n in range(33)]),
    ),
    "tags that are one text": ("invalid_request", lambda s: s.submit("add", {"a": 1}, tags="abc")),
    "a NUL in an input": ("invalid_json", lambda s: s.submit("any", {"x": "a\0b"})),
    "a NUL in the name of an input": ("invalid_json", lambda s: s.submit("any", {"a\0": 1})),
    "a NUL in a tag": ("invalid_json", lambda s: s.submit("add", {"a": 1}, tags=["a\0"])),
    "a lone surrogate in an input": ("invalid_json", lambda s: s.submit("any", {"x": "\ud800"})),
    "a lone surrogate in a key": (
        "invalid_json",
        lambda s: s.submit("add", {"a": 1}, idempotency_key="\udfff"),
    ),
    "NaN": ("invalid_json", lambda s: s.submit("any", {"x": float("nan")})),
    "infinity": ("invalid_json", lambda s: s.submit("any", {"x": [float("-inf")]})),
    "what is not JSON": ("invalid_json", lambda s: s.submit("any", {"x": object()})),
    "an empty key": ("invalid_request", lambda s: s.submit("add", {"a": 1}, idempotency_key="")),
    "a long key": ("too_large", lambda s: s.submit("add", {"a": 1}, external_id="k" * 257)),
    "an empty owner": ("invalid_request", lambda s: s.submit("add", {"a": 1}, owner="")),
    "a priority out of range": ("invalid_request", lambda s: s.submit("add", {"a": 1}, priority=1001)),
    "a priority that is no number": ("invalid_request", lambda s: s.submit("add", {"a": 1}, priority=True)),
    "a limit of nothing": (
        "invalid_request",
        lambda s: s.submit("add", {"a": 1}, resources=Resources(memory_mb=0)),
    ),
    "a limit that is no number": (
        "invalid_request",
        lambda s: s.submit("add", {"a": 1}, resources=Resources(cpu=float("nan"))),
    ),
    "meta data over the limit": ("too_large", lambda s: s.submit("add", {"a": 1}, meta={"x": "y" * 10_001})),
    "answers over the limit": (
        "too_large",
        lambda s: s.submit("add", {"a": 1}, answers={"x": Answer("accept", "y" * 10_001)}),
    ),
    "an answer that is not JSON": (
        "invalid_json",
        lambda s: s.submit("add", {"a": 1}, answers={"x": Answer("accept", object())}),
    ),
    "a page of nothing": ("invalid_request", lambda s: s.list(limit=0)),
    "a page without end": ("invalid_request", lambda s: s.list(limit=10**9)),
    "an unknown state": ("invalid_request", lambda s: s.list(states=["asleep"])),
    "a time that is none": ("invalid_request", lambda s: s.list(submitted_after=2**70)),
    "a cursor of somebody else": ("invalid_cursor", lambda s: s.list(cursor="abc")),
    "a cursor that is no text": ("invalid_cursor", lambda s: s.list(cursor=7)),  # type: ignore[arg-type]
    "a cursor with a lone surrogate": ("invalid_cursor", lambda s: s.list(cursor="\ud800")),
    "an id that is none": ("task_not_found", lambda s: s.status("tsk_nope")),
    "an id that is no text": ("task_not_found", lambda s: s.status(7)),  # type: ignore[arg-type]
    "an id without end": ("task_not_found", lambda s: s.cancel("tsk_" + "A" * 10**6)),
    "an unknown id": ("task_not_found", lambda s: s.result(new_task_id(1))),
    "a wait of less than nothing": ("invalid_request", lambda s: s.wait(new_task_id(1), -1)),
    "a wait that is no number": ("invalid_request", lambda s: s.wait(new_task_id(1), float("nan"))),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_with_its_code_and_nothing_is_written(
    service: TaskService, store: Store, what: str
) -> None:
    code, call = REFUSED[what]
    with pytest.raises(BackburnerError) as refused:
        call(service)
    assert refused.value.code == code
    assert len(str(refused.value)) < 2000
    json.dumps(refused.value.to_dict(), default=str)
    assert store.page(TaskQuery()) == []
    assert store.queue_depths() == []


@pytest.mark.parametrize(
    "change",
    [with_another_seq, lambda cursor: cursor[:-1], lambda cursor: cursor + "x", lambda cursor: ""],
    ids=["another place", "cut off", "longer", "empty"],
)
def test_a_cursor_that_was_tampered_with_is_refused(
    service: TaskService, change: Callable[[str], str]
) -> None:
    with pytest.raises(BackburnerError) as refused:
        tampered(service, change)
    assert refused.value.code == "invalid_cursor"


def test_a_cursor_of_another_owner_is_refused(service: TaskService) -> None:
    for _ in range(2):
        service.submit("add", {"a": 1}, owner="ann")
    cursor = service.list(owner="ann", limit=1).next_cursor
    with pytest.raises(BackburnerError) as refused:
        service.list(owner="bob", cursor=cursor)
    assert refused.value.code == "invalid_cursor"


@pytest.mark.parametrize("cursor", ["1", "log_1", "log_00000000x", "log_-00000001", "log_000000001\n", "", 7])
def test_a_log_cursor_that_is_none_is_refused(service: TaskService, cursor: Any) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    with pytest.raises(BackburnerError) as refused:
        service.logs(task_id, cursor=cursor)
    assert refused.value.code == "invalid_cursor"


def test_the_message_names_the_field_and_the_reason(service: TaskService) -> None:
    with pytest.raises(InvalidRequest, match="'x' is not of type 'integer'") as refused:
        service.submit("add", {"a": "x"})
    assert refused.value.details["field"] == "a"
    with pytest.raises(InvalidRequest, match="10240"):
        service.submit("add", {"a": 1}, tags=["x" * 10_240])
    with pytest.raises(InvalidRequest, match="add, any"):
        service.submit("nope", {})


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        {},
        {"action": "perhaps"},
        {"action": "accept", "content": {"colour": 7}},
        {"action": "accept"},
        {"action": "accept", "content": {"colour": "\ud800"}},
    ],
    ids=["no object", "no action", "unknown action", "breaks the schema", "no content", "lone surrogate"],
)
def test_an_answer_that_is_not_valid_is_refused_and_none_is_taken(
    service: TaskService, store: Store, worker: Worker, answer: Any
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    params = {"message": "Which?", "requestedSchema": schema}
    asked = tuple(
        InputRequest(task_id, key, lease.attempt, "elicitation/create", params, asked_at=1) for key in "ab"
    )
    store.report(lease, Asked(asked))
    with pytest.raises(BackburnerError) as refused:
        service.answer_input(task_id, {"a": {"action": "accept", "content": {"colour": "red"}}, "b": answer})
    assert refused.value.code == "invalid_answer"
    assert [question.answered_at for question in store.input_requests(task_id)] == [None, None]


def test_a_secret_that_breaks_the_schema_is_not_quoted() -> None:
    spec = ToolSpec(
        "login",
        lambda inputs, context: None,
        secrets=frozenset({"password"}),
        input_schema={"type": "object", "properties": {"password": {"type": "string", "minLength": 20}}},
    )
    with pytest.raises(InvalidInputs) as refused:
        spec.check({"password": "hunter2"})
    assert "password" in str(refused.value)
    assert "hunter2" not in str(refused.value)
