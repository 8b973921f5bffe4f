"""A server that has no file descriptor left keeps what it acknowledges, and acknowledges what it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect

SERVER = Path(__file__).with_name("exhausting_server.py")


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("supervisor", ["lives", "is dead"])
async def test_a_task_that_is_kept_is_acknowledged(deployment: Deployment, supervisor: str) -> None:
    async with connect(deployment.stdio(SERVER), "2026") as peer:
        await peer.poll(await peer.start("slow"))
        assert "Too many open files" in str(await peer.call("exhaust"))
        if supervisor == "is dead":
            found = deployment.supervisor()
            assert found is not None
            found.kill()
        kept = [await peer.start("slow") for _ in range(3)]
        await peer.call("recover")
        for task_id in kept:
            assert (await peer.poll(task_id))["status"] == "completed"
        listed = await peer.tool("list_tasks")
        assert len(listed["tasks"]) == 4


async def test_a_held_call_outlasts_it(deployment: Deployment) -> None:
    async with connect(deployment.stdio(SERVER), "2025", tasks=False) as peer:
        await peer.call("slow")
        await peer.call("exhaust")
        assert "slow done" in str(await peer.call("slow"))
        await peer.call("recover")
