"""Tasks outlive the client and the server that made them."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect


def start_task_and_die(deployment: Deployment, call: dict[str, object]) -> None:
    """Speak to a server over stdio by hand, and kill it without a word once the task is there."""
    process = subprocess.Popen(
        deployment.command("stdio"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=deployment.environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    client = {"name": "brief", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    for message in (
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
    ):
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
    try:
        while json.loads(process.stdout.readline()).get("id") != 1:
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def test_a_new_client_and_server_find_the_task_of_those_that_were_killed(
    deployment: Deployment,
) -> None:
    inputs = {"tool_name": "slow", "inputs": {"n": 50, "step_s": 0.02}, "tags": ["survivor"]}
    start_task_and_die(deployment, {"name": "submit_task", "arguments": inputs})
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        (task,) = (await peer.tool("list_tasks", tags_any=["survivor"]))["tasks"]
        waited = await peer.tool("wait_for_task", task_id=task["task_id"], timeout_s=30)
        assert waited["state"] == "succeeded"
        assert (await peer.tool("get_task_status", task_id=task["task_id"]))["attempt"] == 1
        result = await peer.tool("get_task_result", task_id=task["task_id"])
        assert result["result"] == "slow done n=50"
