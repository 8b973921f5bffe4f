"""A server that has never heard of Backburner, nor of tasks.

python plain_server.py stdio
python plain_server.py http PORT
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TOOLS = ("count", "fail")


def outcome(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    return ("it broke", True) if name == "fail" else (f"counted to {arguments.get('n', 3)}", False)


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in TOOLS])


def plain() -> Server[Any]:
    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text, is_error = outcome(params.name, params.arguments or {})
        await ctx.session.report_progress(1, 2, "half")
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)

    return Server("plain", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio, plain())
    else:
        import uvicorn

        app = plain().streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="critical")
