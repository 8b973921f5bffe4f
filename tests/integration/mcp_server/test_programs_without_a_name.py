"""Clients whose name says nothing of their timeouts: results, timeouts, and what these teach about others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("grace_server.py")
JOINED = "backburner/joined"


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path, (SERVER,), {"queues": '{"cpu_standard": {"workers": 4}}'}) as made:
        yield made


async def nap(peer: Peer, file: Path, seconds: float) -> dict[str, Any]:
    return await peer.call("nap", {"file": str(file), "seconds": seconds})


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["content"][0]["text"])


async def test_a_timeout_teaches_about_the_connection_and_not_about_programs_of_the_same_name(
    deployment: Deployment, tmp_path: Path
) -> None:
    hasty, patient = tmp_path / "hasty", tmp_path / "patient"
    with deployment.http() as server:
        async with (
            connect(server.url, "2025", tasks=False, name="mcp") as agent,
            connect(server.url, "2025", tasks=False, name="mcp") as program,
        ):
            inputs = {"file": str(hasty), "seconds": 60}
            with pytest.raises(MCPError, match="timed out"):
                await agent.client.call_tool("nap", inputs, read_timeout_seconds=3)
            waiting = asyncio.ensure_future(nap(program, patient, 6))
            again = await nap(agent, hasty, 60)
            assert "goes on in the background" in text_of(again)
            assert again["_meta"][JOINED] in text_of(again)
            assert "goes on in the background" in text_of(await nap(agent, tmp_path / "other", 60))
            assert text_of(await waiting) == "slept"
    assert hasty.read_text() == "ran\n"


async def test_a_silent_timeout_is_learned_when_the_call_is_repeated(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The client has the name of Python SDK 1, which sends nothing when its timer ends."""
    files = [tmp_path / name for name in ("held", "ended", "later")]
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        first = asyncio.ensure_future(nap(peer, files[0], 60))
        ended = asyncio.ensure_future(nap(peer, files[1], 4))
        await nap(peer, tmp_path / "longer than any timer", 3.5)
        await peer.request("tools/list")  # the next turn of an agent whose calls have timed out
        assert text_of(await ended) == "slept"  # which an agent would not hear any more
        again = await nap(peer, files[1], 4)
        assert (text_of(again), JOINED in again["_meta"]) == ("slept", True)
        for file in (files[0], files[2]):
            assert "goes on in the background" in text_of(await nap(peer, file, 60))
        assert [file.read_text() for file in files] == ["ran\n"] * 3
        first.cancel()


async def test_without_a_session_a_timeout_teaches_about_the_repeated_call_alone(
    deployment: Deployment, tmp_path: Path
) -> None:
    hasty, patient = tmp_path / "hasty", tmp_path / "patient"
    with deployment.http() as server:
        async with connect(server.url, "2026", tasks=False) as peer:
            inputs = {"file": str(hasty), "seconds": 60}
            with pytest.raises(MCPError, match="timed out"):
                await peer.client.call_tool("nap", inputs, read_timeout_seconds=4.5)
            waiting = asyncio.ensure_future(nap(peer, patient, 6))
            assert "goes on in the background" in text_of(await nap(peer, hasty, 60))
            assert text_of(await waiting) == "slept"
    assert hasty.read_text() == "ran\n"
