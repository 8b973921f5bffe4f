"""Adaptive answers: nobody times out, and a model needs few calls."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.source_documents.pipe import Message, Pipe, serving

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


# -- calls that are given up

META = "io.modelcontextprotocol/"
JOINED = "backburner/joined"


def analyse(flag: Path, **meta: Any) -> Message:
    """A call that ends once the flag is there, to be sent."""
    params = {"name": "analyse", "arguments": {"flag": str(flag)}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": f"{time.monotonic()}", "method": "tools/call", "params": params}


def joins(response: Message) -> bool:
    return JOINED in response["result"]["_meta"]


def is_kept_after_a_cancel_at_a_whole_second(pipe: Pipe, flag: Path) -> bool:
    """Cancel a running call as Codex does, end its tool, and repeat it; return whether that joined."""
    first, sent_at = analyse(flag), time.monotonic()
    pipe.send(first)
    while call(pipe, "list_tasks", states=["running"])["structuredContent"]["tasks"] == []:
        pass
    time.sleep(-(time.monotonic() - sent_at) % 1)
    told = {"requestId": first["id"], "reason": "MCP request cancelled by caller"}
    pipe.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})
    flag.touch()
    return joins(pipe.exchange(analyse(flag)))


def test_a_timeout_of_codex_keeps_the_task_for_the_repeated_call_and_is_learned(
    deployment: Deployment, tmp_path: Path
) -> None:
    with serving(deployment) as pipe:
        pipe.initialize("codex-mcp-client")
        call(pipe, "analyse")
        # A busy machine may deliver a cancel late, which then is one by the user.
        assert any(is_kept_after_a_cancel_at_a_whole_second(pipe, tmp_path / f"{n}") for n in range(10))
        # The table says 300 s.
        handle = pipe.exchange(analyse(tmp_path / "never"))["result"]
        assert "goes on in the background" in handle["content"][0]["text"]


@pytest.mark.parametrize(("client", "revision"), [("goose-cli", "2026-07-28"), ("@cline/core", "2025-06-18")])
def test_the_repeated_call_of_a_silent_client_joins_and_is_answered_in_time(
    deployment: Deployment, tmp_path: Path, client: str, revision: str
) -> None:
    with serving(deployment) as pipe:
        meta: dict[str, Any] = {}
        if revision == "2026-07-28":
            meta = {f"{META}protocolVersion": revision, f"{META}clientCapabilities": {}}
            meta |= {f"{META}clientInfo": {"name": client, "version": "1.52.0"}}
        else:
            pipe.initialize(client)
        flag = tmp_path / "over"
        first, repeated = analyse(flag, **meta), analyse(flag, **meta)
        pipe.send(first)
        other = {"name": "submit_task", "arguments": {"tool_name": "analyse", "inputs": {"flag": "none"}}}
        task = pipe.request("tools/call", **other, _meta=meta)["structuredContent"]["task_id"]
        # The shortest timeout of a client is longer than this.
        waited = {"task_id": task, "timeout_s": 3.5}
        pipe.request("tools/call", name="wait_for_task", arguments=waited, _meta=meta)
        pipe.send(repeated)
        answer = pipe.until(lambda message: message.get("id") == repeated["id"])
        # The table says more, but this connection gave up sooner.
        assert joins(answer)
        assert "goes on in the background" in answer["result"]["content"][0]["text"]
        listed = pipe.request("tools/call", name="list_tasks", arguments={}, _meta=meta)["structuredContent"]
        assert len(listed["tasks"]) == 2
        flag.touch()
        first_answer = pipe.until(lambda message: message.get("id") == first["id"])
        assert not joins(first_answer)
        assert first_answer["result"]["content"][0]["text"] == "analysed"
