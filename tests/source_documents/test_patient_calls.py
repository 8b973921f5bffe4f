"""Adaptive answers: nobody times out, and a model needs few calls."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.source_documents.pipe import Pipe, serving

#: A minute of the story, in seconds of the test.
MINUTE_S = 4.0
LIMIT_S = MINUTE_S
TOOL_S = 1.5 * MINUTE_S


@pytest.fixture
def pipe(deployment: Deployment) -> Iterator[Pipe]:
    deployment.settings = {"mcp__client_patience": json.dumps({"plain": 0.8 * LIMIT_S})}
    with serving(deployment) as pipe:
        pipe.initialize("plain")
        call(pipe, "patient", seconds=0)  # the supervisor is there from now on
        yield pipe


def call(pipe: Pipe, name: str, **arguments: Any) -> Any:
    """A call of a model whose client gives up after its limit."""
    started = time.monotonic()
    result = pipe.request("tools/call", name=name, arguments=arguments)
    assert time.monotonic() - started < LIMIT_S, "the client would have given up"
    return result


def test_a_client_that_waits_a_minute_gets_the_result_of_a_ninety_second_tool(pipe: Pipe) -> None:
    handle = call(pipe, "patient", seconds=TOOL_S)
    job_id = handle["data"]["job_id"]
    text = handle["content"][0]["text"]
    assert job_id in text
    assert "wait_for_task" in text
    waited = call(pipe, "wait_for_task", task_id=job_id, timeout_s=300)["structuredContent"]
    if not waited["finished"]:
        waited = call(pipe, "wait_for_task", task_id=job_id)["structuredContent"]
    assert waited["finished"] is True
    assert waited["result"] == {"waited": TOOL_S}


def test_a_call_that_fits_the_patience_is_answered_in_the_call(pipe: Pipe) -> None:
    assert call(pipe, "patient", seconds=0.2)["structuredContent"] == {"waited": 0.2}


def test_a_held_call_speaks_up_although_nothing_happens(pipe: Pipe) -> None:
    pipe.send(
        {
            "jsonrpc": "2.0",
            "id": "held",
            "method": "tools/call",
            "params": {
                "name": "patient",
                "arguments": {"seconds": TOOL_S},
                "_meta": {"progressToken": "beat"},
            },
        }
    )
    response = pipe.until(lambda message: message.get("id") == "held")
    assert response["result"]["data"]["status"] == "running"
    beats = [m["params"]["progress"] for m in pipe.heard if m.get("method") == "notifications/progress"]
    assert len(beats) >= 2
    assert beats == sorted(set(beats))
