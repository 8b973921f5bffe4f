"""The task tools, with the fields and shapes of the design document."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.integration.mcp_server.lasting import Lasting

#: The task tools, with fields that each answer has.
FIELDS = {
    "submit_task": {"task_id", "state", "queue", "position", "submitted_at", "poll_after_ms"},
    "get_task_status": {"task_id", "state", "tool_name", "queue", "submitted_at", "progress", "timeout_at"},
    "tail_task_logs": {"task_id", "lines", "next_cursor", "truncated"},
    "list_tasks": {"tasks", "next_cursor"},
    "cancel_task": {"task_id", "state", "acknowledged"},
    "get_task_result": {"task_id", "state", "result", "artifacts", "error", "completed_at"},
    "wait_for_task": {"task_id", "state", "finished"},
    "list_task_artifacts": {"task_id", "state", "artifacts"},
}
NAMES = set(FIELDS)
#: Bytes that a host may spend on the list of all task tools in each request to its model.
MOST_LISTED_BYTES = 4500


async def called(peer: Peer, name: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a task tool, which has the fields that its answers have."""
    body: dict[str, Any] = await peer.tool(name, **arguments)
    assert FIELDS[name] <= body.keys()
    return body


async def test_a_tool_of_which_nothing_is_known_is_to_be_polled_after_two_seconds(
    deployment: Deployment,
) -> None:
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        submitted = await called(peer, "submit_task", tool_name="ask")
        assert (submitted["estimate_source"], submitted["poll_after_ms"]) == ("default", 2000)
        await peer.tool("cancel_task", task_id=submitted["task_id"])


async def test_a_task_from_submission_to_its_result(server: str) -> None:
    async with connect(server, "2025", tasks=False) as peer:
        submitted = await called(
            peer,
            "submit_task",
            tool_name="slow",
            inputs={"n": 5},
            resources={"resource_class": "cpu_small", "max_runtime_s": 60, "memory_mb": 4096},
            ttl_s=604800,
            idempotency_key="agent-session-123-opt-001",
            priority=5,
            tags=["project:screening"],
        )
        estimate = {"estimated_runtime_seconds", "estimate_source"}
        told = {"task_id", "state", "queue", "position", "submitted_at", "poll_after_ms"}
        assert submitted.keys() == told | estimate
        assert submitted["queue"] == "cpu_small"
        task_id = submitted["task_id"]
        again = await called(
            peer,
            "submit_task",
            tool_name="slow",
            inputs={"n": 5},
            idempotency_key="agent-session-123-opt-001",
        )
        assert again["task_id"] == task_id

        waited = await called(peer, "wait_for_task", task_id=task_id, timeout_s=60)
        assert (waited["finished"], waited["state"]) == (True, "succeeded")
        status = await called(peer, "get_task_status", task_id=task_id)
        fields = {"attempt", "priority", "queue", "worker_id", "started_at", "heartbeat_at", "timeout_at"}
        assert fields <= status.keys()
        assert (status["priority"], status["cancel_requested"], status["attempt"]) == (5, False, 1)
        assert status["progress"].keys() >= {"phase", "percent", "step", "step_total", "eta_s", "message"}

        logs = await called(peer, "tail_task_logs", task_id=task_id, limit=2)
        assert [line["seq"] for line in logs["lines"]] == [1, 2]
        assert logs["lines"][0].keys() == {"seq", "ts", "stream", "level", "message"}
        assert logs["truncated"] is True
        rest = await called(peer, "tail_task_logs", task_id=task_id, cursor=logs["next_cursor"])
        assert rest["lines"][0]["seq"] == 3
        assert rest["next_cursor"].startswith("log_00000000")

        result = await called(peer, "get_task_result", task_id=task_id)
        assert (result["state"], result["result"], result["error"]) == ("succeeded", "slow done n=5", None)

        page = await called(peer, "list_tasks", states=["succeeded"], tags_any=["project:screening"], limit=1)
        assert [task["task_id"] for task in page["tasks"]] == [task_id]
        assert (await called(peer, "list_tasks", submitted_after="2100-01-01T00:00:00Z"))["tasks"] == []

        running = (await called(peer, "submit_task", tool_name="slow", inputs={"n": 10_000}))["task_id"]
        cancelled = await called(peer, "cancel_task", task_id=running, reason="user-request")
        assert (cancelled["task_id"], cancelled["acknowledged"]) == (running, True)
        ended = await called(peer, "wait_for_task", task_id=running, timeout_s=60)
        assert ended["state"] == "cancelled"


async def test_a_wait_is_bounded_and_its_answer_says_that_the_task_goes_on(server: str) -> None:
    async with connect(server, "2026", tasks=False) as peer:
        task_id = (await called(peer, "submit_task", tool_name="slow", inputs={"n": 10_000}))["task_id"]
        waited = await called(peer, "wait_for_task", task_id=task_id, timeout_s=0.2)
        assert waited.keys() == {"task_id", "state", "finished", "status", "cursor", "next"}
        assert waited["finished"] is False
        early = await peer.call("get_task_result", {"task_id": task_id})
        assert early["isError"] is True
        assert early["structuredContent"]["error"]["code"] == "not_finished"
        await called(peer, "cancel_task", task_id=task_id)
        await called(peer, "wait_for_task", task_id=task_id, timeout_s=60)


@pytest.mark.parametrize("name", ["wait_for_task", "get_task_status"])
async def test_no_two_calls_about_an_unfinished_task_are_the_same(server: str, name: str) -> None:
    """Hosts end a loop of identical calls, and some models read only the structured part."""
    async with connect(server, "2025", tasks=False) as peer:
        task_id = (await called(peer, "submit_task", tool_name="slow", inputs={"n": 10_000}))["task_id"]
        asked: dict[str, Any] = {"task_id": task_id}
        bounds = {"timeout_s": 0} if name == "wait_for_task" else {}
        cursors = set()
        for _ in range(3):
            result = await peer.call(name, {**asked, **bounds})
            body = result["structuredContent"]
            cursor = asked["cursor"] = body["cursor"]
            cursors.add(cursor)
            again = f"{name} again" if name == "wait_for_task" else name
            for words in (body["next"], result["content"][0]["text"]):
                assert f"{again} with task_id {task_id} and cursor {cursor}" in words
        assert len(cursors) == 3
        await called(peer, "cancel_task", task_id=task_id)


@pytest.mark.parametrize("cursor", ["", "AAAA", "é", "log_000000001", 7, ["AAAA"], None])
async def test_a_cursor_that_means_nothing_is_ignored(server: str, cursor: Any) -> None:
    async with connect(server, "2026", tasks=False) as peer:
        task_id = (await called(peer, "submit_task", tool_name="slow", inputs={"n": 0}))["task_id"]
        waited = await called(peer, "wait_for_task", task_id=task_id, cursor=cursor)
        assert (waited["state"], waited["result"]) == ("succeeded", "slow done n=0")
        many = await peer.tool("wait_for_task", task_ids=[task_id], cursor=cursor)
        assert [task["result"] for task in many["tasks"]] == ["slow done n=0"]
        assert (await called(peer, "get_task_status", task_id=task_id, cursor=cursor))["state"] == "succeeded"


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_all_task_tools_take_little_of_each_request_of_a_host(lasting: Lasting, era: str) -> None:
    with lasting.deployment(Path(__file__).with_name("anyone_server.py")) as made:
        async with connect(made.stdio(), era, tasks=False) as peer:
            listed = {tool["name"]: tool for tool in (await peer.request("tools/list"))["tools"]}
    tools = [listed[name] for name in (*FIELDS, "answer_task")]
    text = json.dumps(tools, separators=(",", ":"), ensure_ascii=False)
    assert len(text.encode()) <= MOST_LISTED_BYTES
    reading = {tool["name"] for tool in tools if tool.get("annotations", {}).get("readOnlyHint")}
    assert reading == NAMES - {"submit_task", "cancel_task"}


async def test_the_reason_of_a_cancel_is_told_by_every_surface(server: str) -> None:
    async with connect(server, "2025") as peer:
        task_id = (await called(peer, "submit_task", tool_name="slow", inputs={"n": 10_000}))["task_id"]
        async with asyncio.timeout(30):
            while (await called(peer, "get_task_status", task_id=task_id))["state"] != "running":
                pass
        await called(peer, "cancel_task", task_id=task_id, reason="user-request")
        waited = await called(peer, "wait_for_task", task_id=task_id, timeout_s=60)
        assert (waited["state"], waited["error"]["message"]) == ("cancelled", "Cancelled: user-request")
        told = [
            (await called(peer, "get_task_status", task_id=task_id))["cancel_reason"],
            (await called(peer, "get_task_result", task_id=task_id))["error"]["message"],
            (await peer.request("tasks/get", {"taskId": task_id}))["statusMessage"],
            (await peer.request("tools/poll_result", {"job_id": task_id}))["data"]["result"]["messages"][0][
                "text"
            ],
        ]
        assert all("user-request" in one for one in told), told
        with pytest.raises(MCPError, match="user-request"):
            await peer.request("tasks/result", {"taskId": task_id})


async def test_the_status_of_an_expired_task_says_so(deployment: Deployment) -> None:
    deployment.settings["supervisor__keeper_interval_s"] = "0.1"
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        submitted = await called(peer, "submit_task", tool_name="slow", inputs={"n": 1}, ttl_s=1)
        async with asyncio.timeout(30):
            while (await called(peer, "get_task_status", **_only_id(submitted)))["state"] != "expired":
                pass
        gone = await peer.call("get_task_result", _only_id(submitted))
        assert gone["isError"] is True


def _only_id(submitted: dict[str, Any]) -> dict[str, Any]:
    return {"task_id": submitted["task_id"]}


async def test_errors_are_told_in_the_result_for_the_model_to_read(server: str) -> None:
    async with connect(server, "2025") as peer:
        for name, arguments, code in (
            ("submit_task", {"tool_name": "no-such-tool"}, "unknown_tool"),
            ("submit_task", {"tool_name": "slow", "inputs": {"n": "x"}}, "invalid_inputs"),
            (
                "submit_task",
                {"tool_name": "slow", "resources": {"resource_class": "nowhere"}},
                "unknown_queue",
            ),
            ("submit_task", {"tool_name": "slow", "retry_on": "lambda error: True"}, "invalid_inputs"),
            ("get_task_status", {"task_id": "tsk_1"}, "task_not_found"),
            ("get_task_status", {}, "invalid_inputs"),
            ("list_tasks", {"cursor": "tampered"}, "invalid_cursor"),
            ("list_tasks", {"submitted_after": "yesterday"}, "invalid_request"),
            ("tail_task_logs", {"task_id": "tsk_1", "limit": 0}, "invalid_inputs"),
        ):
            result = await peer.call(name, arguments)
            assert result["isError"] is True
            assert result["structuredContent"]["error"]["code"] == code, name


async def test_they_can_be_switched_off(deployment: Deployment) -> None:
    deployment.settings |= {"mcp__task_tools": "false"}
    async with connect(deployment.stdio(), "2025") as peer:
        listed = {tool["name"] for tool in (await peer.request("tools/list"))["tools"]}
        assert not NAMES & listed
    deployment.settings |= {"mcp__task_tools": "few"}
    async with connect(deployment.stdio(), "2025") as peer:
        listed = {tool["name"] for tool in (await peer.request("tools/list"))["tools"]}
        assert listed & NAMES == {"wait_for_task", "get_task_result", "cancel_task"}
