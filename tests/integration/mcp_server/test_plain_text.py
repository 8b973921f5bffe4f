"""Text that a tool without an output schema returns is sent as text alone, and told by every protocol."""

from __future__ import annotations

from typing import Any

from tests.integration.mcp_server.harness import connect

SAID = "slow done n=0"


def is_text_alone(result: dict[str, Any]) -> bool:
    return "structuredContent" not in result and [block["text"] for block in result["content"]] == [SAID]


async def test_plain_text_is_sent_once_and_every_protocol_tells_it(server: str) -> None:
    """Some hosts show structured content in place of the text."""
    arguments = {"n": 0}
    async with connect(server, "2026") as peer:
        task_id = await peer.start("slow", arguments)
        assert is_text_alone((await peer.poll(task_id))["result"])
        polled = await peer.request("tools/poll_result", {"job_id": task_id})
        assert polled["data"]["result"]["data"] == {"result": SAID}
    async with connect(server, "2025") as peer:
        task_id = await peer.start("slow", arguments)
        assert is_text_alone(await peer.request("tasks/result", {"taskId": task_id}))
    async with connect(server, "2025", tasks=False) as peer:
        assert is_text_alone(await peer.call("slow", arguments))
        assert (await peer.tool("wait_for_task", task_id=task_id))["result"] == SAID
        assert (await peer.tool("get_task_result", task_id=task_id))["result"] == SAID
