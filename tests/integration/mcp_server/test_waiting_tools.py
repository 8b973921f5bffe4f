"""Tools that wait run together, many more than there are cores; others keep their few workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import KINDS, Peer, connect

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("waiting_server.py")
#: Where the default queue has one worker, two tasks of it never meet.
ONE_BY_ONE = '{"io": {"workers": 3}, "cpu_standard": {"workers": 1}}'


def deploy(folder: Path, kind: str = "own", **settings: str) -> Deployment:
    return Deployment(folder, (SCRIPT,), settings, {"SERVER_KIND": kind})


async def meeting(peer: Peer, folder: Path, guests: int) -> list[str]:
    """What so many tasks come to that end when all of them have begun."""
    place = folder / "place"
    place.mkdir()
    inputs = {"place": str(place), "guests": guests}
    tasks = [await peer.start("meet", inputs) for _ in range(guests)]
    return [task["status"] for task in await asyncio.gather(*map(peer.poll, tasks))]


@pytest.mark.whole
async def test_fifty_tools_that_wait_for_each_other_run_together_by_default(tmp_path: Path) -> None:
    with deploy(tmp_path) as deployment:
        async with connect(deployment.stdio(), "2026") as peer:
            assert await meeting(peer, tmp_path, 50) == ["completed"] * 50


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("kind", KINDS)
async def test_async_tools_of_each_framework_wait_together_and_others_keep_their_queue(
    tmp_path: Path, kind: str
) -> None:
    with deploy(tmp_path, kind, queues=ONE_BY_ONE) as deployment:
        async with connect(deployment.stdio(), "2026") as peer:
            assert await meeting(peer, tmp_path, 3) == ["completed"] * 3
            if kind != "lowlevel":  # of which every tool is async
                submitted = await peer.tool("submit_task", tool_name="compute", inputs={})
                assert submitted["queue"] == "cpu_standard"
