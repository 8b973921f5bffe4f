"""Schemas and values that would take for ever: each is refused, and meanwhile others are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.guarded import BOMBS
from tests.integration.mcp_server.harness import Peer, connect
from tests.system.interop.serving import serving

LONG = "a" * 60 + "b"
VALUES: dict[str, Any] = {
    "text": LONG,
    "named": {LONG: 1},
    "many": [[number] if number % 2 else {"n": number} for number in range(20_000)],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of guarded.py, for all tests: what one of them does to it, the next one would notice."""
    script = Path(__file__).with_name("guarded.py")
    settings = {"mcp__patience_s": "60", "supervisor__idle_exit_s": "0"}
    with serving(Deployment(tmp_path_factory.mktemp("bombs"), (script,), settings)) as url:
        yield url


async def answered_meanwhile(slow: asyncio.Task[Any], peer: Peer) -> Any:
    """What the slow call came to; another's request was answered before, or with it."""
    other = asyncio.ensure_future(peer.tool("list_tasks"))
    await asyncio.wait({slow, other}, return_when=asyncio.FIRST_COMPLETED)
    assert (await asyncio.wait_for(other, 20))["tasks"] is not None
    return await slow


@pytest.mark.whole(but_first=3)
@pytest.mark.parametrize("bomb", [name for name in BOMBS if name != "unique"])
async def test_inputs_that_cannot_be_checked_are_refused(url: str, bomb: str) -> None:
    async with connect(url, "2025") as peer, connect(url, "2025") as other:
        await peer.request("tools/list")
        call = asyncio.ensure_future(peer.call(f"bomb_{bomb}", VALUES))
        answer = await answered_meanwhile(call, other)
        assert answer["isError"] is True
        assert answer["structuredContent"]["error"]["code"] == "invalid_inputs"
        assert "cannot be checked" in answer["content"][0]["text"]


async def test_many_different_items_are_told_apart_at_once(url: str) -> None:
    async with connect(url, "2025") as peer:
        taken = await peer.tool("submit_task", tool_name="bomb_unique", inputs=VALUES)
        assert (await peer.tool("wait_for_task", task_id=taken["task_id"]))["state"] == "succeeded"
        twice = {"many": [{"a": [1, True]}, 1, {"a": [1.0, True]}]}
        answer = await peer.call("submit_task", {"tool_name": "bomb_unique", "inputs": twice})
        assert "non-unique" in answer["content"][0]["text"]
        apart = {"many": [1, True, "1", [1], {"1": 1}, None, 0, False]}
        taken = await peer.tool("submit_task", tool_name="bomb_unique", inputs=apart)
        assert taken["state"] == "queued"


async def test_an_answer_that_cannot_be_checked_is_refused_and_the_task_goes_on_asking(url: str) -> None:
    async with connect(url, "2026") as peer, connect(url, "2025") as other:
        task_id = await peer.start("ask_slowly")
        (key,) = (await peer.poll(task_id, "input_required"))["inputRequests"]

        async def answer(name: str) -> Any:
            said = {key: {"action": "accept", "content": {"name": name}}}
            return await peer.request("tasks/update", {"taskId": task_id, "inputResponses": said})

        with pytest.raises(MCPError, match="cannot be checked") as refused:
            await answered_meanwhile(asyncio.ensure_future(answer(LONG)), other)
        assert refused.value.code == -32602
        with pytest.raises(MCPError, match="bytes long") as refused:
            await answer("a" * 2_000_000)
        assert refused.value.code == -32602
        await answer("aa")
        assert (await peer.poll(task_id))["status"] == "completed"


@pytest.mark.whole(but_first=4)
@pytest.mark.parametrize("bomb", BOMBS)
async def test_completion_of_such_a_tool_s_arguments_holds_up_nobody(url: str, bomb: str) -> None:
    async with connect(url, "2025") as peer, connect(url, "2025") as other:
        for partial in ("", {"name": "text", "value": "a"}, {"name": "named", "value": "{"}):
            params = {"name": f"bomb_{bomb}", "partial_argument": partial, "arguments": VALUES}
            call = asyncio.ensure_future(peer.request("completion/complete", params))
            assert (await answered_meanwhile(call, other))["completion"]["values"] is not None
