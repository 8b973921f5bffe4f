"""Three tools, two of them slow, with Backburner's defaults: `python backburner_server.py PORT STORE`."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer

from backburner import Backburner

STORE = "BENCHMARK_STORE"

server = MCPServer("over-mcp")


@server.tool()
async def plain() -> int:
    return 1


@server.tool()
async def nothing() -> int:
    return 1


@server.tool()
async def wait_a_second() -> int:
    await asyncio.sleep(1)
    return 1


bb = Backburner.attach(
    server,
    slow=["nothing", "wait_a_second"],
    store=os.environ.setdefault(STORE, sys.argv[2] if len(sys.argv) > 2 else "sqlite://"),
)

if __name__ == "__main__":
    from backburner.mcp.transport.run import run_http

    run_http(bb, "127.0.0.1", int(sys.argv[1]), log_level="error")
