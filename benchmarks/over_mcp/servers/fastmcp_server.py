"""The same tools behind FastMCP with fastmcp-tasks and its defaults: `python fastmcp_server.py PORT URL`."""

from __future__ import annotations

import asyncio
import sys

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

mcp = FastMCP("over-mcp")
mcp.add_extension(TasksExtension(url=sys.argv[2]))


@mcp.tool
async def plain() -> int:
    return 1


@mcp.tool(task=True)
async def nothing() -> int:
    return 1


@mcp.tool(task=True)
async def wait_a_second() -> int:
    await asyncio.sleep(1)
    return 1


if __name__ == "__main__":
    mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), log_level="ERROR", show_banner=False)
