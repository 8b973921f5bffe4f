"""A host on the SDK's 1.x line, with nothing in it about tasks. Run by an interpreter that has that SDK.

python legacy_host.py COMMAND ARGUMENTS…

Prints one JSON object: what it saw.
"""

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client


async def main(command: str, *arguments: str) -> None:
    seen: dict[str, Any] = {"progress": []}

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen["progress"].append([progress, total, message])

    server = StdioServerParameters(command=command, args=list(arguments), env=dict(os.environ))
    async with (
        stdio_client(server) as (reads, writes),
        ClientSession(reads, writes, elicitation_callback=elicit) as session,
    ):
        greeting: Any = await session.initialize()
        seen["server"] = greeting.serverInfo.name
        seen["tools"] = [tool.name for tool in (await session.list_tools()).tools]

        async def call(name: str, **inputs: Any) -> tuple[str, bool, Any]:
            result: Any = await session.call_tool(name, inputs, progress_callback=on_progress)
            return result.content[0].text, bool(result.isError), result.structuredContent

        async def end_of(answer: tuple[str, bool, Any]) -> tuple[str, bool, Any]:
            """Ask on while all that comes is a handle."""
            while answer[2] is not None and (job_id := answer[2].get("data", {}).get("job_id")):
                answer = await call("wait_for_task", task_id=job_id)
            return answer

        gates = os.environ["GATES"]
        seen["count"] = await end_of(await call("count", n=3))
        seen["ask"] = await end_of(await call("ask"))
        seen["fail"] = await end_of(await call("fail"))
        seen["held"] = await call("gates", folder=gates, n=1)
        job_id = seen["held"][2]["data"]["job_id"]
        seen["waited"] = await call("wait_for_task", task_id=job_id, timeout_s=0.2)
        open(os.path.join(gates, "end"), "w").close()  # noqa: ASYNC230, PTH118, PTH123
        seen["result"] = await end_of(seen["held"])
        seen["unknown"] = await call("wait_for_task", task_id="tsk_unknown")
        asleep = await call("sleep", seconds=60)
        seen["cancelled"] = await call("cancel_task", task_id=asleep[2]["data"]["job_id"])
        seen["after"] = await end_of(asleep)
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
