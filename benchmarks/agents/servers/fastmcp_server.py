"""The tool behind FastMCP with fastmcp-tasks and its defaults. `python fastmcp_server.py stdio|PORT`"""

from __future__ import annotations

import sys

from crunching import crunch
from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

mcp = FastMCP("agents")
mcp.add_extension(TasksExtension())
mcp.tool(task=True)(crunch)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        mcp.run(show_banner=False)
    else:
        port = int(sys.argv[1])
        mcp.run(transport="http", host="127.0.0.1", port=port, log_level="ERROR", show_banner=False)
