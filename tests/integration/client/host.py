"""A host of the TaskId contract that is started, killed, and started again.

python host.py STATE_DIR PENDING_FILE GATES
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from backburner.client import AsyncTask, HostPoller


async def main(state_dir: str, pending_file: str, gates: str) -> None:
    script = str(Path(__file__).with_name("app.py"))
    server = StdioServerParameters(command=sys.executable, args=[script, "stdio"], env=dict(os.environ))

    async def call_tool(
        name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> types.CallToolResult:
        async with Client(server) as client:
            return await client.call_tool(name, dict(arguments), meta=dict(meta))  # type: ignore[arg-type]

    settings = AsyncTask(tools=("gates_by_task_id",), state_dir=Path(state_dir))
    poller = HostPoller(call_tool, settings, pending_file=pending_file)
    if poller.pending:
        (task_id,) = poller.pending
        print("found", flush=True)
    else:
        task_id = await poller.start("gates_by_task_id", {"folder": gates})
        print("pending", flush=True)
    result = await poller.wait(task_id)
    print(f"result {result.content[0].text}", flush=True)  # type: ignore[union-attr]
    await poller.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
