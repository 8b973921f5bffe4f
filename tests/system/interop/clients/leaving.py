"""A client over stdio that starts a task, says which when it runs, and stays until it is killed.

python leaving.py COMMAND ARGUMENT...
"""

import asyncio
import os
import sys

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main() -> None:
    command, *arguments = sys.argv[1:]
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        inputs = {"n": 150, "step_s": 0.02}
        submitted = await client.call_tool("submit_task", {"tool_name": "slow", "inputs": inputs})
        assert submitted.structured_content is not None
        task_id = submitted.structured_content["task_id"]
        status = submitted
        while (status.structured_content or {}).get("state") != "running":
            status = await client.call_tool("get_task_status", {"task_id": task_id})
        print(task_id, flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
