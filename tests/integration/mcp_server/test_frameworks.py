"""The same tools, on each framework and over each transport, for clients of both generations."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from backburner.mcp.sdk import is_fastmcp, server_in_fastmcp
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import KINDS, Peer, connect, make_app
from tests.integration.mcp_server.lasting import Lasting
from tests.services import until

pytestmark = pytest.mark.slow

TRANSPORTS = ("memory", "stdio", "http")
#: Each framework over each transport, the pairs of `make test` first.
OF_2026 = [("lowlevel", "stdio"), ("mcpserver", "http"), ("fastmcp", "stdio")]
OF_2025 = [("lowlevel", "memory"), ("mcpserver", "stdio"), ("fastmcp", "http")]
PAIRS = [(kind, transport) for kind in KINDS for transport in TRANSPORTS]


@contextlib.asynccontextmanager
async def client_of(
    lasting: Lasting, deployment: Deployment, transport: str, era: str, **options: Any
) -> AsyncIterator[Peer]:
    if transport == "stdio":
        async with connect(deployment.stdio(), era, **options) as peer:
            yield peer
    elif transport == "http":
        async with connect(lasting.url(deployment), era, **options) as peer:
            yield peer
    else:
        with deployment.app(make_app) as app:
            served = app.mcp_server()
            low = server_in_fastmcp(served) if is_fastmcp(served) else served
            async with connect(low, era, **options) as peer:
                yield peer


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.whole(but_first=3)
@pytest.mark.parametrize(("shared", "transport"), [*dict.fromkeys([*OF_2026, *PAIRS])], indirect=["shared"])
async def test_a_client_of_2026_runs_slow_tools_as_tasks(
    lasting: Lasting, shared: Deployment, transport: str
) -> None:
    async with client_of(lasting, shared, transport, "2026") as peer:
        done = await peer.poll(await peer.start("slow", {"n": 3}))
        assert (done["status"], text_of(done["result"])) == ("completed", "slow done n=3")

        asking = await peer.start("ask")
        waiting = await peer.poll(asking, "input_required")
        assert waiting["status"] == "input_required"
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in waiting["inputRequests"]}
        await peer.request("tasks/update", {"taskId": asking, "inputResponses": answers})
        assert text_of((await peer.poll(asking))["result"]) == "Hello, Ada!"

        failed = await peer.poll(await peer.start("fail"))
        assert (failed["status"], failed["result"]["isError"]) == ("completed", True)

        broken = await peer.poll(await peer.start("protocol_error"))
        assert broken["status"] == "failed"
        assert broken["error"] == {"code": -32050, "message": "no such thing", "data": {"x": 1}}

        endless = await peer.start("slow", {"n": 10_000})
        await peer.request("tasks/cancel", {"taskId": endless})
        assert (await peer.poll(endless))["status"] == "cancelled"

        late = await peer.poll(await peer.start("short"))
        assert (late["status"], late["error"]["code"]) == ("failed", -32603)


@pytest.mark.whole(but_first=3)
@pytest.mark.parametrize(("shared", "transport"), [*dict.fromkeys([*OF_2025, *PAIRS])], indirect=["shared"])
async def test_a_client_of_2025_runs_slow_tools_as_tasks(
    lasting: Lasting, shared: Deployment, transport: str
) -> None:
    async with client_of(lasting, shared, transport, "2025") as peer:
        slow = await peer.start("slow", {"n": 3})
        result = await peer.request("tasks/result", {"taskId": slow})
        assert text_of(result) == "slow done n=3"
        assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": slow}

        parked = await peer.request("tasks/result", {"taskId": await peer.start("ask")})
        assert text_of(parked) == "Hello, Ada!"
        polled = await peer.poll(await peer.start("ask"))
        assert polled["status"] == "completed"

        failing = await peer.start("fail")
        assert (await peer.poll(failing))["status"] == "failed"
        assert (await peer.request("tasks/result", {"taskId": failing}))["isError"] is True

        with pytest.raises(MCPError, match="no such thing") as broken:
            await peer.request("tasks/result", {"taskId": await peer.start("protocol_error")})
        assert broken.value.code == -32050

        endless = await peer.start("slow", {"n": 10_000})
        assert (await peer.request("tasks/cancel", {"taskId": endless}))["status"] == "cancelled"

        late = await peer.poll(await peer.start("short"))
        assert late["status"] == "failed"
        assert "longer than its limit" in late["statusMessage"]


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize(
    ("shared", "era"),
    [
        ("own", "2025"),
        ("lowlevel", "2026"),
        ("mcpserver", "2025"),
        ("mcpserver", "2026"),
        ("fastmcp", "2026"),
    ],
    indirect=["shared"],
)
async def test_a_client_without_tasks_gets_the_result_in_the_call(
    lasting: Lasting, shared: Deployment, era: str
) -> None:
    async with client_of(lasting, shared, "stdio", era, tasks=False) as peer:
        assert text_of(await peer.call("slow", {"n": 2})) == "slow done n=2"
        held = await peer.client.call_tool("ask", {})
        assert held.content[0].text == "Hello, Ada!"  # type: ignore[union-attr]
        assert (await peer.call("fail"))["isError"] is True
        with pytest.raises(MCPError, match="no such thing"):
            await peer.call("protocol_error")
        assert "longer than its limit" in text_of(await peer.call("short"))
        handle = await peer.call("quick_handle", meta={"async": True})
        assert handle["isError"] is False
        job_id = handle["data"]["job_id"]
        typed = shared.variables["SERVER_KIND"] in ("mcpserver", "fastmcp")
        assert ("structuredContent" in handle) is not typed
        assert handle["_meta" if typed else "structuredContent"]["data"] == handle["data"]
        assert (await peer.tool("wait_for_task", task_id=job_id, timeout_s=60))["finished"] is True
        assert (await peer.tool("get_task_result", task_id=job_id))["state"] == "succeeded"
        await until(
            lambda: [told["job_id"] for told in peer.wire.of("notifications/tool_result")] == [job_id]
        )


@pytest.mark.parametrize("shared", ["lowlevel", "mcpserver", "fastmcp"], indirect=True)
async def test_the_server_s_other_tools_stay_as_they_are(lasting: Lasting, shared: Deployment) -> None:
    async with client_of(lasting, shared, "http", "2026") as peer:
        listed = (await peer.request("tools/list"))["tools"]
        assert listed[0]["name"] == "fast"
        assert text_of(await peer.call("fast", {"x": 7})) == "fast 7"
        assert [tool["name"] for tool in listed[-2:]] == ["list_tasks", "cancel_task"]
