"""The tasks extension of 2026-07-28, behaviour by behaviour."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from backburner import Backburner
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import TASKS, Peer, connect, make_app
from tests.integration.source_documents.pipe import serving
from tests.services import until

UNKNOWN = "tsk_" + "0" * 36
#: On a server that others use, so that no task of theirs is joined whose result nobody has got.
NEW = {"backburner/new": True}


def meta(capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    declared = {"extensions": {TASKS: {}}} if capabilities is None else capabilities
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": declared,
    }


async def test_a_task_is_durable_before_it_is_returned(server: str) -> None:
    async with connect(server, "2026") as peer:
        created = await peer.call("slow", {"n": 1})
        assert created["resultType"] == "task"
        assert not {"result", "error", "inputRequests", "task", "requestState"} & created.keys()
        seen = await peer.request("tasks/get", {"taskId": created["taskId"]})
        assert seen["taskId"] == created["taskId"]
        assert seen["createdAt"] == created["createdAt"]
        assert isinstance(created["ttlMs"], int)


async def test_a_client_that_honours_the_poll_interval_sees_a_quick_tool_end_at_once(
    server: str,
) -> None:
    async with connect(server, "2026") as peer:
        for _ in range(2):  # what is not known yet, and what is known to be quick
            created = await peer.call("slow", {"n": 0})
            assert created["pollIntervalMs"] <= 100
            assert (await peer.poll(created["taskId"]))["status"] == "completed"


EXPECTED = """
from pathlib import Path
from backburner import Backburner, TaskContext

bb = Backburner("expected")

@bb.tool(estimate=0.02)
def wait(flag: str, context: TaskContext) -> str:
    while not Path(flag).exists() and not context.wait_cancelled(0.01):
        pass
    return "over"
"""


def test_a_get_waits_for_the_expected_end_of_a_task_while_others_are_answered(
    deployment: Deployment, tmp_path: Path
) -> None:
    app, flag = tmp_path / "expected.py", tmp_path / "over"
    app.write_text(EXPECTED)
    with serving(deployment, app=app) as pipe:
        arguments = {"flag": str(flag)}
        task_id = pipe.request("tools/call", name="wait", arguments=arguments, _meta=meta())["taskId"]
        for asked in (task_id, UNKNOWN):
            params = {"taskId": asked, "_meta": meta()}
            pipe.send({"jsonrpc": "2.0", "id": asked, "method": "tasks/get", "params": params})
        first = pipe.until(lambda message: message.get("id") in (task_id, UNKNOWN))
        assert first["id"] == UNKNOWN
        flag.touch()
        seen = pipe.until(lambda message: message.get("id") == task_id)["result"]
        while seen["status"] == "working":
            seen = pipe.request("tasks/get", taskId=task_id, _meta=meta())
        assert seen["result"]["content"][0]["text"] == "over"


async def test_last_updated_moves_only_when_the_task_does(server: str) -> None:
    async with connect(server, "2026") as peer:
        asking = await peer.start("ask")
        one = await peer.poll(asking, "input_required")
        two = await peer.request("tasks/get", {"taskId": asking})
        assert one["lastUpdatedAt"] == two["lastUpdatedAt"]
        await peer.request("tasks/cancel", {"taskId": asking})
        done = await peer.poll(asking)
        assert datetime.fromisoformat(done["lastUpdatedAt"]) > datetime.fromisoformat(one["lastUpdatedAt"])


async def test_the_status_message_tells_phase_percent_and_time_left(server: str) -> None:
    async with connect(server, "2026") as peer:
        task_id = await peer.start("slow", {"n": 10_000})
        said = ""
        while "counting" not in said:
            said = str((await peer.request("tasks/get", {"taskId": task_id})).get("statusMessage"))
        assert "%" in said
        assert "step" in said
        await peer.request("tasks/cancel", {"taskId": task_id})
        await peer.poll(task_id)


async def test_partial_answers_leave_the_rest_open_and_unknown_keys_are_passed_over(
    server: str,
) -> None:
    async with connect(server, "2026") as peer:
        task_id = await peer.start("ask_two")
        waiting = await peer.poll(task_id, "input_required")
        first, second = waiting["inputRequests"]
        yes = {"action": "accept", "content": {"name": "Ada"}}
        answered = {first: yes, "never-asked": {"ignored": True}}
        await peer.request("tasks/update", {"taskId": task_id, "inputResponses": answered})
        after = await peer.request("tasks/get", {"taskId": task_id})
        assert list(after["inputRequests"]) == [second]
        await peer.request("tasks/update", {"taskId": task_id, "inputResponses": {first: yes, second: yes}})
        done = await peer.poll(task_id)
        assert done["result"]["content"][0]["text"] == "Ada and Ada"


async def test_an_answer_that_breaks_the_schema_is_refused_and_none_is_taken(server: str) -> None:
    async with connect(server, "2026") as peer:
        task_id = await peer.start("ask")
        (key,) = (await peer.poll(task_id, "input_required"))["inputRequests"]
        wrong = {key: {"action": "accept", "content": {"name": 7}}}
        with pytest.raises(MCPError) as refused:
            await peer.request("tasks/update", {"taskId": task_id, "inputResponses": wrong})
        assert refused.value.code == -32602
        again = await peer.request("tasks/get", {"taskId": task_id})
        assert list(again["inputRequests"]) == [key]
        await peer.request(
            "tasks/update", {"taskId": task_id, "inputResponses": {key: {"action": "decline"}}}
        )
        assert (await peer.poll(task_id))["result"]["content"][0]["text"] == "no: decline"


async def test_cancelling_is_acknowledged_with_an_empty_result_and_twice_is_harmless(
    server: str,
) -> None:
    async with connect(server, "2026") as peer:
        task_id = await peer.start("slow", {"n": 10_000})
        for _ in range(2):
            acknowledged = await peer.request("tasks/cancel", {"taskId": task_id})
            assert acknowledged.keys() <= {"resultType", "_meta"}
        await peer.poll(task_id)
        assert (await peer.request("tasks/cancel", {"taskId": task_id}))["resultType"] == "complete"


async def test_what_the_inlined_result_of_a_task_looks_like(server: str) -> None:
    async with connect(server, "2026") as peer:
        done = await peer.poll(await peer.start("hold"))
        assert done["result"]["resultType"] == "complete"
        assert done["result"]["structuredContent"] == {"held": True}
        assert "io.modelcontextprotocol/related-task" not in done["result"].get("_meta", {})
        assert "error" not in done


async def test_a_tool_that_asks_first_is_answered_before_there_is_a_task(server: str) -> None:
    async with connect(server, "2026") as peer:
        newest = await peer.start("slow", {"n": 0}, meta=NEW)
        asked = await peer.call("asks_first")
        assert asked["resultType"] == "input_required"
        assert "taskId" not in asked
        assert (await peer.tool("list_tasks", limit=1))["tasks"][0]["task_id"] == newest
        wrong = await peer.call("asks_first", inputResponses={"other": {"action": "accept", "content": {}}})
        assert wrong["resultType"] == "input_required"
        yes = {"user": {"action": "accept", "content": {"name": "Ada"}}}
        created = await peer.call("asks_first", inputResponses=yes)
        assert created["resultType"] == "task"
        done = await peer.poll(created["taskId"])
        assert done["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_methods_of_the_other_generation_are_not_found(server: str) -> None:
    async with connect(server, "2026") as peer:
        for method, params in (
            ("tasks/result", {"taskId": UNKNOWN}),
            ("tasks/list", {}),
            ("tasks/other", {}),
        ):
            with pytest.raises(MCPError) as refused:
                await peer.request(method, params)
            assert refused.value.code == -32601


async def test_a_task_param_of_2025_is_ignored(server: str) -> None:
    async with connect(server, "2026", tasks=False) as peer:
        held = await peer.call("hold", {}, task={"ttl": 1000})
        assert held["resultType"] == "complete"
        assert held["structuredContent"] == {"held": True}


async def test_without_the_capability_there_is_no_task_and_the_error_names_it(server: str) -> None:
    async with connect(server, "2026", tasks=False) as peer:
        for method, params in (
            ("tasks/get", {"taskId": UNKNOWN}),
            ("tasks/update", {"taskId": UNKNOWN, "inputResponses": {}}),
            ("tasks/cancel", {"taskId": UNKNOWN}),
            ("tools/call", {"name": "must", "arguments": {}}),
            ("subscriptions/listen", {"notifications": {"taskIds": [UNKNOWN]}}),
        ):
            with pytest.raises(MCPError) as refused:
                await peer.request(method, params)
            assert refused.value.code == -32021
            assert refused.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_the_extension_is_advertised_and_the_capability_of_2025_is_not(server: str) -> None:
    async with connect(server, "2026") as peer:
        discovered = await peer.request("server/discover")
        assert discovered["capabilities"]["extensions"][TASKS] == {}
        assert "tasks" not in discovered["capabilities"]
        for tool in (await peer.request("tools/list"))["tools"]:
            assert "execution" not in tool


async def test_over_http_the_name_header_must_be_the_task_s_if_there_is_one(server: str) -> None:
    async with connect(server, "2026") as peer, httpx2.AsyncClient() as http:
        task_id = await peer.start("slow", {"n": 1})

        async def ask(method: str, named: str | None) -> httpx2.Response:
            headers = {
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": method,
                **({} if named is None else {"Mcp-Name": named}),
            }
            body = {"jsonrpc": "2.0", "id": 1, "method": method}
            params = {"taskId": task_id, "inputResponses": {}, "_meta": meta()}
            return await http.post(server, json={**body, "params": params}, headers=headers)

        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            mismatched = await ask(method, "another")
            assert (mismatched.status_code, mismatched.json()["error"]["code"]) == (400, -32020)
            for named in (task_id, None):  # the clients of FastMCP send none: docs/explanation/deviations.md
                assert "error" not in (await ask(method, named)).json()
        await peer.poll(task_id)


async def test_a_listener_hears_each_status_with_its_payload(server: str) -> None:
    async with connect(server, "2026") as peer:
        task_id = await peer.start("ask")
        wanted = {"notifications": {"taskIds": [task_id, UNKNOWN], "toolsListChanged": True}}
        listening = asyncio.ensure_future(peer.request("subscriptions/listen", wanted))

        def heard(status: str) -> list[dict[str, Any]]:
            return [said for said in peer.wire.of("notifications/tasks") if said["status"] == status]

        (acknowledged,) = await until(lambda: peer.wire.of("notifications/subscriptions/acknowledged"))
        assert acknowledged["notifications"] == {"taskIds": [task_id], "toolsListChanged": True}
        waiting = (await until(lambda: heard("input_required")))[0]
        subscription = waiting["_meta"]["io.modelcontextprotocol/subscriptionId"]
        assert subscription == acknowledged["_meta"]["io.modelcontextprotocol/subscriptionId"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in waiting["inputRequests"]}
        await peer.request("tasks/update", {"taskId": task_id, "inputResponses": answers})
        done = (await until(lambda: heard("completed")))[0]
        assert done["result"]["content"][0]["text"] == "Hello, Ada!"
        assert peer.wire.of("notifications/progress") == []
        listening.cancel()


async def test_the_trace_of_the_request_is_kept_with_the_task(
    shared: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    # OpenTelemetry logs what is no tracestate as it came, and half a surrogate pair can be told to nobody.
    caplog.set_level(logging.ERROR, "opentelemetry.trace.span")
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with shared.app(make_app) as app:
        async with connect(app.mcp_server(), "2026") as peer:
            for given, kept in (
                ({"traceparent": traceparent, "tracestate": "a=1,b=2"}, (traceparent, "a=1,b=2")),
                ({"traceparent": traceparent, "tracestate": "a=" + "1" * 511}, (traceparent, None)),
                ({"traceparent": traceparent, "tracestate": "a=\ud800\x00"}, (traceparent, None)),
                ({"traceparent": traceparent, "tracestate": {"a": 1}}, (traceparent, None)),
                ({"tracestate": "a=1"}, (None, None)),
            ):
                created = await _call_with_meta(peer, "slow", {"n": 0}, **given)
                task = _task(app, created["taskId"])
                assert (task.traceparent, task.tracestate) == kept
                await peer.poll(created["taskId"])


async def _call_with_meta(peer: Peer, name: str, arguments: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return await peer.call(name, arguments, meta={**NEW, **extra})


def _task(app: Backburner, task_id: str) -> Any:
    return app.service.status(task_id).task


async def test_unknown_expired_and_foreign_ids_get_the_same_error(shared: Deployment) -> None:
    with shared.app(make_app) as app:
        async with connect(app.mcp_server(), "2026") as peer:
            task_id = await peer.start("slow", {"n": 0})
            await peer.poll(task_id)
            foreign = app.service.submit("slow", {"n": 0}, owner="somebody").task_id
            app.service.wait(foreign, 60, owner="somebody")
            short = app.service.submit("slow", {"n": 0}, ttl_s=0.0001).task_id
            app.service.wait(short, 60)
            app.store.expire()
            seen = set()
            for asked in (UNKNOWN, "nonsense", "", "x" * 10_000, foreign, short):
                for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                    with pytest.raises(MCPError) as refused:
                        await peer.request(method, {"taskId": asked, "inputResponses": {}})
                    seen.add((refused.value.code, refused.value.message, str(refused.value.data)))
            assert seen == {(-32602, "Failed to retrieve task: Task not found", "None")}
