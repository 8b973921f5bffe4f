"""What callers ask for is bounded: by what a store can keep, by the tool's limits and by the operator's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.integration.mcp_server.lasting import Lasting

SCRIPT = Path(__file__).with_name("guarded.py")


@pytest.fixture
def guarded_on_postgres(guarded: Deployment, postgres_database: str) -> Deployment:
    guarded.settings |= {"store": postgres_database}
    return guarded


@pytest.fixture
def url(lasting: Lasting, shared_guarded: Deployment) -> str:
    """The address of the server of guarded.py, which other tests use as well."""
    return lasting.url(shared_guarded)


async def refused(peer: Peer, **arguments: Any) -> str:
    """What `submit_task` says, which it refuses."""
    answer = await peer.call("submit_task", arguments)
    assert answer["isError"] is True, answer
    codes = ("invalid_inputs", "invalid_request", "unknown_queue", "over_limit")
    assert answer["structuredContent"]["error"]["code"] in codes, answer
    text: str = answer["content"][0]["text"]
    return text


ABSURD: list[dict[str, Any]] = [
    *({"resources": {"max_runtime_s": value}} for value in (1e300, 1e18, 1e15, 1e12, 10**26, 10**400)),
    *({"resources": {"memory_mb": value}} for value in (10**26, 1e300, 2**53)),
    *({"resources": {"scratch_mb": value}} for value in (10**26, 2**63)),
    *({"resources": {"cpu": value}} for value in (1e300, 10**26)),
    *({"priority": value} for value in (10**26, -(10**26), 2**63, 1001)),
    {"ttl_s": -1},
    {"tags": ["x"] * 33},
    {"tags": ["x" * 257]},
    {"tags": [""]},
    {"idempotency_key": "x" * 257},
    {"idempotency_key": ""},
    {"resources": {"resource_class": "x" * 257}},
]


async def survives_absurd_requests(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2025") as peer:
        other = await peer.tool("submit_task", tool_name="count", inputs={"n": 20})
        for absurd in ABSURD:
            await refused(peer, tool_name="count", **absurd)
        kept = await peer.tool("submit_task", tool_name="count", ttl_s=10**9)
        for task in (other, kept):
            waited = await peer.tool("wait_for_task", task_id=task["task_id"], timeout_s=60)
            assert waited["state"] == "succeeded"
        assert len((await peer.tool("list_tasks"))["tasks"]) == 2


async def test_no_absurd_number_is_taken_and_the_supervisor_lives(guarded: Deployment) -> None:
    await survives_absurd_requests(guarded)


@pytest.mark.whole
async def test_no_absurd_number_is_taken_on_postgresql_either(guarded_on_postgres: Deployment) -> None:
    await survives_absurd_requests(guarded_on_postgres)


async def test_an_amount_that_no_answer_can_have_is_no_reason_to_refuse_a_call(url: str) -> None:
    """The schemas that are listed have no room for bounds."""
    async with connect(url, "2025") as peer:
        task = {"task_id": (await peer.tool("submit_task", tool_name="count"))["task_id"]}
        assert (await peer.tool("wait_for_task", **task, timeout_s=10**9))["state"] == "succeeded"
        assert (await peer.tool("tail_task_logs", **task, limit=10**9))["truncated"] is False
        assert (await peer.tool("list_tasks", limit=10**9))["tasks"]


async def test_a_caller_gets_no_more_than_the_tool_s_own_limits(url: str) -> None:
    async with connect(url, "2025") as peer:
        for asked, limit in (
            ({"max_runtime_s": 3601}, "3600"),
            ({"memory_mb": 513}, "512"),
            ({"scratch_mb": 101}, "100"),
            ({"cpu": 3}, "2"),
        ):
            said = await refused(peer, tool_name="limited", resources=asked)
            (name,) = asked
            assert f"resources.{name}" in said
            assert f"limit of {limit}" in said
            assert "limited" in said
        less = {"max_runtime_s": 60, "memory_mb": 512, "scratch_mb": 100, "cpu": 1}
        task = await peer.tool("submit_task", tool_name="limited", resources=less)
        assert (await peer.tool("wait_for_task", task_id=task["task_id"]))["state"] == "succeeded"


async def test_a_caller_gets_no_more_than_the_operator_allows(shared_guarded: Deployment) -> None:
    shared_guarded.settings |= {
        "limits__max_runtime_s": "10m",
        "limits__max_memory_mb": "256",
        "limits__max_scratch_mb": "50",
        "limits__max_cpu": "1.5",
    }
    async with connect(shared_guarded.stdio(), "2025") as peer:
        for tool, asked, limit in (
            ("count", {"max_runtime_s": 601}, "limit of 600.0, which the operator (limits.max_runtime_s)"),
            ("count", {"memory_mb": 257}, "limit of 256, which the operator (limits.max_memory_mb)"),
            ("count", {"scratch_mb": 51}, "limit of 50, which the operator (limits.max_scratch_mb)"),
            ("count", {"cpu": 2}, "limit of 1.5, which the operator (limits.max_cpu)"),
            ("limited", {"memory_mb": 512}, "limit of 256, which the operator (limits.max_memory_mb)"),
        ):
            assert limit in await refused(peer, tool_name=tool, resources=asked)
        task = await peer.tool("submit_task", tool_name="count", resources={"memory_mb": 256})
        assert (await peer.tool("wait_for_task", task_id=task["task_id"]))["state"] == "succeeded"


async def test_a_task_s_time_to_live_is_bounded_in_each_way_to_ask_for_it(url: str) -> None:
    async with connect(url, "2025") as peer:
        for ttl in (10**400, 10**26, 10**15, 2**63):
            task = (await peer.call("count", task={"ttl": ttl}))["task"]
            assert task["ttl"] == 90 * 86400 * 1000
        for ttl in (-1, 0, -(10**26)):
            with pytest.raises(MCPError) as error:
                await peer.call("count", task={"ttl": ttl})
            assert error.value.code == -32602


async def test_places_in_resources_and_logs_are_bounded(url: str) -> None:
    async with connect(url, "2025") as peer:
        made = (await peer.tool("submit_task", tool_name="keep", inputs={"name": "kept.bin"}))["task_id"]
        done = await peer.tool("wait_for_task", task_id=made, timeout_s=60)
        uris = [done["artifacts"][0]["resource"], f"task://{made}/logs", f"task://{made}/result"]
        for uri in uris:
            beyond = (f"offset={10**12}", f"offset={10**26}", f"offset={'9' * 5000}", "offset=1e26")
            for query in (*beyond, "offset=-1", f"length=-{10**26}", "length=0"):
                with pytest.raises(MCPError) as error:
                    await peer.request("resources/read", {"uri": f"{uri}?{query}"})
                assert error.value.code == -32602, (uri, query)
        for cursor in (f"log_{10**26}", f"log_{'9' * 15}"):
            answer = await peer.call("tail_task_logs", {"task_id": made, "cursor": cursor})
            told = answer["structuredContent"]
            assert told.get("lines") == [] or told["error"]["code"] == "invalid_cursor"


async def test_what_nobody_foresaw_is_an_internal_error_with_a_code_and_without_its_text(
    url: str,
) -> None:
    async with connect(url, "2026") as peer:
        with pytest.raises(MCPError) as error:
            await peer.call("stumbles", {"which": "a secret of the server"})
        assert (error.value.code, error.value.data) == (-32603, {"code": "internal_error"})
        assert "secret" not in error.value.message
        assert (await peer.poll(await peer.start("count")))["status"] == "completed"
