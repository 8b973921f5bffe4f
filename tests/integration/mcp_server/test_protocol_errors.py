"""A protocol error that a tool raises, ours or the SDK's own, reaches the client as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from backburner.client import BackburnerClient
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.system.interop.serving import serving

EXPECTED: dict[str, Any] = {
    "code": -32050,
    "message": "go there first",
    "data": {"url": "https://example.org/"},
}
RAISED = ["ours", "sdk", "subclass", "model"]
BARE = ["no data", "data that is no JSON", "too much data"]


@pytest.fixture(scope="module")
def raising(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server of raising.py, for all tests."""
    script = Path(__file__).with_name("raising.py")
    settings = {"mcp__patience_s": "60", "supervisor__idle_exit_s": "0"}
    with serving(Deployment(tmp_path_factory.mktemp("raising"), (script,), settings)) as url:
        yield url


async def raised(peer: Peer, method: str, params: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(MCPError) as refused:
        await peer.request(method, params)
    return refused.value.error.model_dump(exclude_none=True)


async def called(peer: Peer, tool: str, error: str) -> dict[str, Any]:
    return await raised(peer, "tools/call", {"name": tool, "arguments": {"error": error}})


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_held_call_is_answered_with_it(raising: str, era: str) -> None:
    async with connect(raising, era, tasks=False) as peer:
        for error in RAISED:
            assert await called(peer, "held", error) == EXPECTED, error
            assert await called(peer, "held_async", error) == EXPECTED, error


async def test_a_task_of_2026_fails_with_it(raising: str) -> None:
    async with connect(raising, "2026") as peer:
        for error in RAISED:
            task = await peer.poll(await peer.start("handled", {"error": error}))
            assert (task["status"], task["error"]) == ("failed", EXPECTED), error


async def test_the_result_of_a_task_of_2025_is_it(raising: str) -> None:
    async with connect(raising, "2025") as peer:
        for error in RAISED:
            task_id = await peer.start("handled", {"error": error})
            assert await raised(peer, "tasks/result", {"taskId": task_id}) == EXPECTED, error


async def test_a_two_stage_job_and_the_task_tools_tell_it(raising: str) -> None:
    async with connect(raising, "2025", tasks=False, check=False) as peer:
        for error in RAISED:
            job = (await peer.call("handled", {"error": error}))["structuredContent"]["data"]["job_id"]
            waited = await peer.tool("wait_for_task", task_id=job, timeout_s=60)
            assert (waited["error"]["type"], waited["error"]["jsonrpc"]) == ("protocol_error", EXPECTED), (
                error
            )
            polled = (await peer.request("tools/poll_result", {"job_id": job}))["data"]["result"]
            assert (polled["success"], polled["data"]) == (False, {"error": EXPECTED}), error


async def test_our_client_raises_it_whatever_the_server_speaks(raising: str) -> None:
    for tasks, tool in ((True, "held"), (True, "handled"), (False, "handled")):
        async with BackburnerClient(raising, tasks=tasks) as client:
            with pytest.raises(MCPError) as refused:
                await client.call(tool, {"error": "subclass"})
            assert refused.value.error.model_dump(exclude_none=True) == EXPECTED


async def test_what_cannot_be_told_of_it_does_not_cost_its_code(raising: str) -> None:
    bare = {key: EXPECTED[key] for key in ("code", "message")}
    async with connect(raising, "2025", tasks=False) as peer:
        for error in BARE:
            assert await called(peer, "held", error) == bare, error
        result = await peer.call("held", {"error": "half made"})
        assert result["isError"] is True
