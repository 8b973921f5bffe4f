"""The tasks of 2025-11-25, behaviour by behaviour."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from backburner.core.times import from_iso
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect, make_app
from tests.services import until

RELATED = "io.modelcontextprotocol/related-task"
UNKNOWN = "tsk_" + "0" * 36
#: On a server that others use, so that no task of theirs is joined whose result nobody has got.
NEW = {"backburner/new": True}


async def test_the_capability_and_each_tool_s_support_are_declared(server: str) -> None:
    async with connect(server, "2025") as peer:
        tasks = peer.client.server_capabilities.tasks
        assert tasks is not None
        shown = tasks.model_dump(by_alias=True, exclude_none=True)
        assert shown == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        tools = {tool["name"]: tool for tool in (await peer.request("tools/list"))["tools"]}
        support = {name: tools[name]["execution"]["taskSupport"] for name in ("slow", "must", "never")}
        assert support == {"slow": "optional", "must": "required", "never": "forbidden"}
        assert "execution" not in tools["submit_task"]


async def test_a_task_is_made_with_the_time_to_live_that_was_asked_for(server: str) -> None:
    async with connect(server, "2025") as peer:
        created = await peer.call("slow", {"n": 0}, task={"ttl": 90_000}, meta=NEW)
        assert created["task"]["ttl"] == 90_000
        assert created["task"]["status"] == "working"
        await peer.poll(created["task"]["taskId"])


async def test_the_time_to_live_is_unlimited_while_a_task_runs_and_then_counts_from_its_end(
    server: str,
) -> None:
    async with connect(server, "2025") as peer:
        task_id = (await peer.call("ask", task={"ttl": 90_000}, meta=NEW))["task"]["taskId"]
        asking = await peer.poll(task_id, "input_required")
        assert asking["ttl"] is None
        await peer.request("tasks/cancel", {"taskId": task_id})
        done = await peer.poll(task_id)
        ran_ms = from_iso(done["lastUpdatedAt"]) - from_iso(done["createdAt"])
        assert done["ttl"] == ran_ms + 90_000


async def test_a_result_is_waited_for_and_names_its_task(server: str) -> None:
    async with connect(server, "2025") as peer:
        task_id = await peer.start("slow", {"n": 10})
        result = await peer.request("tasks/result", {"taskId": task_id})
        assert result["content"][0]["text"] == "slow done n=10"
        assert result["_meta"][RELATED] == {"taskId": task_id}
        again = await peer.request("tasks/result", {"taskId": task_id})
        assert again == result


async def test_the_session_hears_status_and_progress_after_the_call_was_answered(
    server: str,
) -> None:
    async with connect(server, "2025") as peer:

        def statuses(task_id: str) -> list[str]:
            told = peer.wire.of("notifications/tasks/status")
            return [said["status"] for said in told if said["taskId"] == task_id]

        while not peer.wire.of("notifications/tasks/status"):  # until its stream is open
            await peer.poll(await peer.start("slow", {"n": 0}, meta=NEW))
        task_id = await peer.start("slow", {"n": 10_000}, meta={"progressToken": "tok-1"})
        await until(lambda: len(peer.wire.of("notifications/progress")) > 1)
        await peer.request("tasks/cancel", {"taskId": task_id})
        await until(lambda: "cancelled" in statuses(task_id))
        assert statuses(task_id)[0] == "working"
        progress = peer.wire.of("notifications/progress")
        assert all(said["progressToken"] == "tok-1" for said in progress)
        assert all(said["_meta"][RELATED] == {"taskId": task_id} for said in progress)
        values = [said["progress"] for said in progress]
        assert values == sorted(set(values))

        quick = await peer.start("slow", {"n": 0}, meta=NEW)
        await until(lambda: "completed" in statuses(quick))


@pytest.mark.parametrize("parks", [True, False])
async def test_a_question_is_put_to_the_client_once_whether_it_parks_or_polls(
    server: str, parks: bool
) -> None:
    async with connect(server, "2025") as peer:
        task_id = await peer.start("ask_two")
        if parks:
            result = await peer.request("tasks/result", {"taskId": task_id})
        else:
            assert (await peer.poll(task_id))["status"] == "completed"
            result = await peer.request("tasks/result", {"taskId": task_id})
        assert result["content"][0]["text"] == "Ada and Ada"
        asked = [request["params"] for request in peer.wire.requests]
        assert sorted(params["message"] for params in asked) == ["First?", "Second?"]
        assert all(params["_meta"][RELATED] == {"taskId": task_id} for params in asked)


async def test_a_refusal_reaches_the_tool(server: str) -> None:
    async def refuse(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with connect(server, "2025", elicit=refuse) as peer:
        result = await peer.request("tasks/result", {"taskId": await peer.start("ask")})
        assert result["content"][0]["text"] == "no: decline"


async def test_a_client_that_cannot_be_asked_is_taken_to_refuse(server: str) -> None:
    async with connect(server, "2025", elicit=None) as peer:
        result = await peer.request("tasks/result", {"taskId": await peer.start("ask")})
        assert result["content"][0]["text"] == "no: cancel"


async def test_a_tool_that_asks_first_asks_inside_its_task(server: str) -> None:
    async with connect(server, "2025") as peer:
        result = await peer.request("tasks/result", {"taskId": await peer.start("asks_first")})
        assert result["content"][0]["text"] == "Hello, Ada!"


async def test_cancelling_ends_a_task_and_a_finished_one_cannot_be_cancelled(server: str) -> None:
    async with connect(server, "2025") as peer:
        task_id = await peer.start("slow", {"n": 10_000})
        parked = asyncio.ensure_future(peer.request("tasks/result", {"taskId": task_id}))
        assert (await peer.request("tasks/cancel", {"taskId": task_id}))["status"] == "cancelled"
        with pytest.raises(MCPError, match="cancelled"):
            await parked
        with pytest.raises(MCPError) as refused:
            await peer.request("tasks/cancel", {"taskId": task_id})
        assert refused.value.code == -32602


async def test_lists_are_paged_by_cursor_and_a_tampered_cursor_is_refused(deployment: Deployment) -> None:
    with deployment.app(make_app) as app:
        for _ in range(60):
            app.service.submit("slow", {"n": 0})
        app.service.submit("slow", {"n": 0}, owner="somebody")
        async with connect(app.mcp_server(), "2025") as peer:
            first = await peer.request("tasks/list")
            second = await peer.request("tasks/list", {"cursor": first["nextCursor"]})
            ids = [task["taskId"] for task in (*first["tasks"], *second["tasks"])]
            assert (len(first["tasks"]), len(ids), len(set(ids))) == (50, 60, 60)
            assert "nextCursor" not in second
            for cursor in (first["nextCursor"][:-2], "x", "0"):
                with pytest.raises(MCPError) as refused:
                    await peer.request("tasks/list", {"cursor": cursor})
                assert refused.value.code == -32602


async def test_what_a_tool_does_not_support_is_not_found(server: str) -> None:
    async with connect(server, "2025") as peer:
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("never", {"task": {}}),
            ("must", {}),
            ("no-such-tool", {"task": {}}),
        ]
        for name, params in wrong:
            with pytest.raises(MCPError) as refused:
                await peer.call(name, **params)
            assert refused.value.code == -32601
        with pytest.raises(MCPError) as refused:
            await peer.request("tasks/update", {"taskId": UNKNOWN, "inputResponses": {}})
        assert refused.value.code == -32601


async def test_inputs_that_break_the_schema_make_no_task(server: str) -> None:
    async with connect(server, "2025") as peer:
        newest = await peer.start("slow", {"n": 0}, meta=NEW)
        with pytest.raises(MCPError, match="inputs of slow") as refused:
            await peer.call("slow", {"n": "many"}, task={})
        assert refused.value.code == -32602
        assert (await peer.request("tasks/list"))["tasks"][0]["taskId"] == newest


async def test_an_unknown_id_is_refused_in_the_same_words_by_every_method(server: str) -> None:
    async with connect(server, "2025") as peer:
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            with pytest.raises(MCPError, match="Failed to retrieve task: Task not found") as refused:
                await peer.request(method, {"taskId": UNKNOWN})
            assert refused.value.code == -32602
