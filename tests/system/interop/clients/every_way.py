"""Calls a slow tool in every way that there is, and prints what came of each.

python every_way.py http URL
python every_way.py stdio COMMAND ARGUMENT...

Run by an interpreter with the oldest or the newest SDK that the package admits, as the server is.
"""

import asyncio
import os
import sys
from typing import Any

import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from backburner.client import BackburnerClient, TasksExtension
from backburner.mcp.sdk import raw_request
from tests.system.interop.clients.programs import report


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def main(kind: str, target: str, *arguments: str) -> None:
    server: Any = target
    if kind == "stdio":
        server = StdioServerParameters(command=target, args=list(arguments), env=dict(os.environ))
    slow: dict[str, Any] = {"name": "slow", "arguments": {"n": 3}}

    async def listed() -> dict[str, Any]:
        async with Client(server) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            return {"there": sorted(names & {"fast", "slow", "wait_for_task"})}

    async def as_a_task_of_2026() -> dict[str, Any]:
        statuses: list[str] = []

        async def note(task: dict[str, Any]) -> None:
            statuses.append(task["status"])

        async with Client(server, mode="2026-07-28", extensions=[TasksExtension(note)]) as client:
            text = text_of(await client.call_tool(**slow))
            return {"text": text, "status": statuses[-1]}

    async def as_a_task_of_2025() -> dict[str, Any]:
        async with Client(server, mode="legacy") as client:
            made = await raw_request(client.session, "tools/call", {**slow, "task": {"ttl": 60_000}})
            task = {"taskId": made["task"]["taskId"]}
            result = await raw_request(client.session, "tasks/result", task)
            status = (await raw_request(client.session, "tasks/get", task))["status"]
            return {"text": result["content"][0]["text"], "status": status}

    async def plainly() -> dict[str, Any]:
        async with Client(server) as client:
            return {"text": text_of(await client.call_tool(**slow))}

    async def by_our_client() -> dict[str, Any]:
        async with BackburnerClient(server) as client:
            handle = await client.start("slow", n=3)
            updates = [update.status async for update in handle.watch()]
            return {"text": text_of(await handle.result()), "status": updates[-1], "dialect": handle.dialect}

    await report(
        listed=listed,
        as_a_task_of_2026=as_a_task_of_2026,
        as_a_task_of_2025=as_a_task_of_2025,
        plainly=plainly,
        by_our_client=by_our_client,
    )


asyncio.run(main(*sys.argv[1:]))
