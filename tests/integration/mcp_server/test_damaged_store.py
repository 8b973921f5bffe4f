"""A store that is damaged under a running server is an error with a name, for every client."""

from __future__ import annotations

import os

from mcp.shared.exceptions import MCPError

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect


async def test_a_truncated_journal_is_called_by_its_name(deployment: Deployment) -> None:
    deployment.settings["supervisor__idle_exit_s"] = "1"
    async with connect(deployment.stdio(), "2026") as peer:
        task_id = await peer.start("slow", {"n": 1})
        await peer.poll(task_id)
        os.truncate(deployment.folder / "tasks.db-wal", 0)
        said = await refusals(peer, task_id, 20)
    assert said == {"store_corrupt"}


async def refusals(peer: Peer, task_id: str, times: int) -> set[str]:
    """The codes of all that is refused. (What a process has in its memory can still be read at first.)"""
    codes: set[str] = set()
    for _ in range(times):
        try:
            await peer.request("tasks/get", {"taskId": task_id})
        except MCPError as error:
            codes.add(error.data["code"] if error.data else f"nothing but {error.code}")
        listed = (await peer.call("list_tasks"))["structuredContent"]
        if "error" in listed:
            codes.add(listed["error"]["code"])
    return codes
