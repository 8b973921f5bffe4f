"""A server of the kind that SERVER_KIND names, with a lifespan that writes down when it begins and ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types

from backburner import Backburner

DIARY = Path(os.environ["LIFESPAN_DIARY"])


def note(what: str) -> None:
    with DIARY.open("a") as file:
        file.write(f"{what} {os.getpid()}\n")


class Pool:
    """What a lifespan gives: it counts in the background, and opens files when it is used."""

    def __init__(self) -> None:
        self.ticks = 0
        self.uses = 0
        self.open: list[Any] = []

    async def tick(self) -> None:
        while True:
            self.ticks += 1
            if os.environ.get("LIFESPAN_TICKS"):
                note("tick")
            await asyncio.sleep(0.02)


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[Pool]:
    if os.path.exists(f"{DIARY}.broken"):  # noqa: PTH110, ASYNC240
        raise RuntimeError("the database is away")
    note("begin")
    pool = Pool()
    ticking = asyncio.create_task(pool.tick())
    try:
        yield pool
    finally:
        ticking.cancel()
        await asyncio.sleep(0.01)
        note("end")


def use(pool: Any) -> dict[str, int]:
    pool.uses += 1
    pool.open.append(DIARY.open())  # as a connection that is opened when it is first needed
    left = sum(task.get_name() == "left-behind" for task in asyncio.all_tasks())
    asyncio.get_running_loop().create_task(asyncio.sleep(600), name="left-behind")
    return {"pid": os.getpid(), "uses": pool.uses, "left": left, "threads": threading.active_count()}


def make(kind: str) -> Any:
    if kind == "lowlevel":
        from mcp.server.lowlevel.server import Server

        async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
            schema = {"type": "object"}
            return types.ListToolsResult(tools=[types.Tool(name="look", input_schema=schema)])

        async def call_tool(ctx: Any, params: Any) -> types.CallToolResult:
            seen = use(ctx.lifespan_context)
            content: list[types.ContentBlock] = [types.TextContent(type="text", text=json.dumps(seen))]
            return types.CallToolResult(content=content, structured_content=dict(seen))

        return Server("lab", lifespan=lifespan, on_list_tools=list_tools, on_call_tool=call_tool)
    if kind == "mcpserver":
        from mcp.server.mcpserver import Context, MCPServer

        server = MCPServer("lab", lifespan=lifespan)

        async def look(ctx: Context) -> dict[str, int]:
            await asyncio.to_thread(int)
            return use(ctx.request_context.lifespan_context)

        look.__annotations__["ctx"] = Context
        server.add_tool(look)
        return server
    import fastmcp

    fast: Any = fastmcp.FastMCP("lab", lifespan=lifespan)

    async def look_fast(ctx: fastmcp.Context) -> dict[str, int]:
        await asyncio.to_thread(int)
        return use(ctx.lifespan_context)

    look_fast.__annotations__["ctx"] = fastmcp.Context
    fast.tool(name="look")(look_fast)
    return fast


bb = Backburner.attach(
    make(os.environ["SERVER_KIND"]),
    slow={"look": {"isolation": os.environ.get("LIFESPAN_ISOLATION", "warm")}},
    name="lab",
    queues={"cpu_standard": 1},
)

if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    bb.run()
