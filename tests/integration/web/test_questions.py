"""Questions of tools: what cannot be shown to a person is refused when it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.web.conftest import FINAL, Api

PROPERTY = {"type": "object", "properties": {"name": "text"}}


@pytest.mark.parametrize(
    ("tool", "inputs", "wrong"),
    [
        ("ask_so", {"message": 7}, "message"),
        ("ask_so", {"message": "Name?", "schema": 7}, "requestedSchema"),
        ("ask_so", {"message": "Name?", "schema": PROPERTY}, "requestedSchema"),
        ("ask_anything", {"params": {"message": ["Name?"]}}, "message"),
        ("ask_anything", {"params": {"message": "Go there", "mode": "url", "url": 7}}, "url"),
        ("ask_anything", {"params": {}, "method": "sampling/createMessage"}, "messages"),
        ("ask_anything", {"params": {}, "method": "tools/call"}, "tools/call"),
    ],
)
def test_a_question_that_cannot_be_shown_fails_the_task(
    local: Api, tool: str, inputs: dict[str, Any], wrong: str
) -> None:
    task = local.until(local.submit(tool, **inputs), lambda task: task["state"] in {*FINAL, "input_required"})
    assert (task["state"], task["all_questions"]) == ("failed", [])
    assert wrong in task["error"]["message"]
