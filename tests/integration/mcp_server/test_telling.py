"""A call may name who is told of its task's end, and a chat hears of the end of what was handed out to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.source_documents.pipe import APP, Pipe, serving
from tests.services import wait_until
from tests.webhook_receiver import SECRET, Receiver, receiving

pytestmark = pytest.mark.slow

CHANNEL = "notifications/claude/channel"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def pipe(tmp_path: Path, receiver: Receiver) -> Iterator[Pipe]:
    """A client of a server that speaks up in chats, and that lets callers name the receiver."""
    settings = {
        "mcp__wake_chat": "claude-channel",
        "webhook__secret": SECRET,
        "webhook__allowed_hosts": json.dumps([receiver.url.split("/")[2]]),
        "webhook__allow_http": "true",
        "webhook__allow_private": "true",
    }
    with Deployment(tmp_path, (APP,), settings) as deployment, serving(deployment) as pipe:
        yield pipe


def words(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"])


def spoken_up(pipe: Pipe, task_id: str) -> dict[str, Any]:
    """What the chat is told of a task."""

    def is_it(heard: dict[str, Any]) -> bool:
        return heard.get("method") == CHANNEL and heard["params"]["meta"]["task_id"] == task_id

    params: dict[str, Any] = pipe.until(is_it)["params"]
    return params


def test_a_chat_is_told_once_when_what_was_handed_out_to_it_is_over(pipe: Pipe, tmp_path: Path) -> None:
    said = pipe.initialize("claude-code")
    assert said["capabilities"]["experimental"]["claude/channel"] == {}
    call = {"name": "wksm_vault_index", "arguments": {"path": str(tmp_path)}, "_meta": {"async": True}}
    handle = pipe.request("tools/call", **call)
    submitted = {"tool_name": "wksm_vault_index", "inputs": {"path": str(tmp_path)}}
    second = pipe.request("tools/call", name="submit_task", arguments=submitted)["structuredContent"]
    (tmp_path / "indexed").touch()
    for task_id in (handle["data"]["job_id"], second["task_id"]):
        told = spoken_up(pipe, task_id)
        assert told["meta"] == {"task_id": task_id, "tool": "wksm_vault_index", "state": "succeeded"}
        assert "has succeeded" in told["content"]
        assert f"get_task_result with task_id {task_id}" in told["content"]
        result = pipe.request("tools/call", name="get_task_result", arguments={"task_id": task_id})
        assert result["structuredContent"]["result"] == {"notes": 3}
    held = pipe.request("tools/call", name="analyze_document", arguments={"format": "pdf"})
    assert words(held) == "Result data", "who was answered is told nothing more"
    pipe.request("ping")
    assert [heard.get("method") for heard in pipe.heard].count(CHANNEL) == 2


def test_a_call_names_an_endpoint_of_its_own_and_one_that_is_not_allowed_is_refused(
    pipe: Pipe, receiver: Receiver
) -> None:
    pipe.initialize()
    call: dict[str, Any] = {"name": "analyze_document", "arguments": {"format": "pdf"}}
    refused = pipe.request(
        "tools/call", **call, _meta={"backburner/webhook": {"url": "http://169.254.169.254/"}}
    )
    assert (refused["isError"], "is not in webhook.allowed_hosts" in words(refused)) == (True, True)
    pipe.request("tools/call", **call, _meta={"backburner/webhook": {"url": receiver.url}})
    submitted = {"tool_name": "analyze_document", "inputs": {"format": "pdf"}}
    meta = {"backburner/webhook": {"url": receiver.url, "states": ["failed", "succeeded"]}}
    pipe.request("tools/call", name="submit_task", arguments=submitted, _meta=meta)
    assert wait_until(lambda: len(receiver.arrived) == 2)
    assert {body["type"] for _, body in receiver.arrived} == {"task.succeeded"}
    assert receiver.forged == []


def test_a_server_that_is_not_told_so_speaks_up_in_no_chat_and_takes_no_endpoint(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment, serving(deployment) as pipe:
        said = pipe.initialize("claude-code")
        assert "claude/channel" not in (said["capabilities"].get("experimental") or {})
        call: dict[str, Any] = {"name": "analyze_document", "arguments": {"format": "pdf"}}
        refused = pipe.request(
            "tools/call", **call, _meta={"backburner/webhook": {"url": "https://a.example"}}
        )
        assert (refused["isError"], "webhook.allowed_hosts" in words(refused)) == (True, True)
