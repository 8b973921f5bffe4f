"""Tools that wait for each other, on each framework. It is started as servers.py is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mcp_types as types

from backburner import Backburner
from tests.services import until
from tests.told_transport import serve_as_told

SLOW = ["meet", "compute"]


def come_to(place: str) -> None:
    Path(place, str(os.getpid())).touch()


async def meet(place: str, guests: int) -> str:
    """Wait until so many tasks are here."""
    come_to(place)
    await until(lambda: len(os.listdir(place)) == guests, within=90)
    return "all are here"


def compute() -> str:
    """Wait for nobody."""
    return "computed"


def make_own() -> Backburner:
    bb = Backburner("waiting")
    bb.tool(meet)
    bb.tool(compute)
    return bb


def make_mcpserver() -> Backburner:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("waiting", log_level="WARNING")
    for function in (meet, compute):
        server.tool()(function)
    return Backburner.attach(server, slow=SLOW)


def make_fastmcp() -> Backburner:
    """One server in another, as FastMCP's authors put theirs together."""
    from fastmcp import FastMCP

    inner, outer = FastMCP("inner"), FastMCP("waiting")
    for function in (meet, compute):
        inner.tool(function)
    outer.mount(inner)
    return Backburner.attach(outer, slow=SLOW)


def make_lowlevel() -> Backburner:
    from mcp.server.lowlevel import Server

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="meet", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = await meet(**(params.arguments or {}))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server = Server("waiting", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    return Backburner.attach(server, slow=SLOW)


MAKERS = {"own": make_own, "lowlevel": make_lowlevel, "mcpserver": make_mcpserver, "fastmcp": make_fastmcp}

bb = MAKERS[os.environ.get("SERVER_KIND", "own")]()

if __name__ == "__main__":
    serve_as_told(bb)
