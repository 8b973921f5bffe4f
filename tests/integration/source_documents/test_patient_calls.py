"""Adaptive answers: nobody times out, and a model needs few calls."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.source_documents.pipe import Pipe, serving

#: A minute of the story, in seconds of the test.
MINUTE_S = 1.0


@pytest.fixture
def pipe(deployment: Deployment) -> Iterator[Pipe]:
    patience = {"hasty": MINUTE_S, "beating": 6, "patient": "forever"}
    deployment.settings = {"mcp__client_patience": json.dumps(patience)}
    with serving(deployment) as pipe:
        yield pipe


def call(pipe: Pipe, name: str, **arguments: Any) -> Any:
    return pipe.request("tools/call", name=name, arguments=arguments)


def wait(pipe: Pipe, job_id: str) -> Any:
    """The model wants to wait for much longer than its client does."""
    return call(pipe, "wait_for_task", task_id=job_id, timeout_s=300)["structuredContent"]


def test_a_client_that_waits_a_minute_gets_the_result_of_a_longer_tool(pipe: Pipe, tmp_path: Path) -> None:
    """Each call is answered by itself, long before the tool is over."""
    pipe.initialize("hasty")
    began = time.monotonic()
    handle = call(pipe, "analyse", flag=str(tmp_path / "over"))
    assert time.monotonic() - began >= MINUTE_S
    job_id = handle["data"]["job_id"]
    text = handle["content"][0]["text"]
    assert job_id in text
    assert "wait_for_task" in text
    assert wait(pipe, job_id)["finished"] is False
    (tmp_path / "over").touch()
    while not (waited := wait(pipe, job_id))["finished"]:
        pass
    assert waited["result"] == "analysed"


@pytest.mark.whole
def test_a_call_that_fits_the_patience_is_answered_in_the_call(pipe: Pipe) -> None:
    pipe.initialize("patient")
    assert call(pipe, "analyse")["content"] == [{"type": "text", "text": "analysed"}]


@pytest.mark.whole
def test_a_held_call_speaks_up_although_nothing_happens(pipe: Pipe, tmp_path: Path) -> None:
    pipe.initialize("beating")
    call(pipe, "analyse")  # so that a supervisor is at work
    inputs = {"name": "analyse", "arguments": {"flag": str(tmp_path / "over")}}
    params = {**inputs, "_meta": {"progressToken": "beat"}}
    pipe.send({"jsonrpc": "2.0", "id": "held", "method": "tools/call", "params": params})
    response = pipe.until(lambda message: message.get("id") == "held")
    assert response["result"]["data"]["status"] == "running"
    beats = [m["params"]["progress"] for m in pipe.heard if m.get("method") == "notifications/progress"]
    assert len(beats) >= 2
    assert beats == sorted(set(beats))
    (tmp_path / "over").touch()
