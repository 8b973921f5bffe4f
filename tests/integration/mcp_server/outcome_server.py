"""Tools that say their own outcome, on each framework.

    python outcome_server.py stdio
    python outcome_server.py http PORT

The framework is what SERVER_KIND says, as in servers.py.
"""

# Annotations are no texts here: the frameworks read them.

import json
import os
from typing import Any

import mcp_types as types

from backburner import Backburner, MCPResult, Retry, TaskContext
from tests.told_transport import serve_as_told

SAID = {
    "success": False,
    "data": {"copied": 3},
    "messages": [
        {"type": "warning", "text": "the disk is nearly full"},
        {"type": "error", "text": "2 files were not copied", "details": "a.txt, b.txt"},
        {"type": "error", "text": "1 folder was not made", "details": "c/"},
    ],
}


def result(well: bool) -> MCPResult:
    """What SAID is, or that it went well."""
    said = MCPResult(data={"copied": 3}).add_warning("the disk is nearly full")
    if well:
        return said.add_success("Copied")
    return said.add_error("2 files were not copied", "a.txt, b.txt").add_error("1 folder was not made", "c/")


def copy(well: bool = False) -> MCPResult:
    """Say it as an object."""
    return result(well)


async def copy_async(well: bool = False) -> MCPResult:
    """Say it as an object, from a coroutine."""
    return result(well)


def copy_as_dict(well: bool = False) -> dict[str, Any]:
    """Say it as a dict."""
    return result(well).to_dict()


def copy_unannotated(well: bool = False):  # type: ignore[no-untyped-def]  # that is the case
    """Say it as an object, in a function that does not say what it returns."""
    return result(well)


def ordinary() -> dict[str, Any]:
    """Give a dict that only looks a little like one."""
    return {"success": False, "data": [1], "messages": []}


def copy_fast(well: bool = False) -> MCPResult:
    """Say it in a fast tool."""
    return result(well)


FUNCTIONS: list[Any] = [copy, copy_async, copy_as_dict, copy_unannotated, ordinary]
SLOW: dict[str, Any] = {function.__name__: {} for function in FUNCTIONS}


def make_own() -> Backburner:
    bb = Backburner("outcomes")
    for function in FUNCTIONS:
        bb.tool(function)
    bb.tool(task="never")(copy_fast)

    @bb.tool(answer="handle")
    def copy_later(well: bool = False) -> MCPResult:
        """Say it behind a handle."""
        return result(well)

    @bb.tool(secrets=["key"])
    def tell_secret(key: str) -> MCPResult:
        """Quote a secret."""
        return MCPResult.error_result(f"{key} is wrong", f"{key}!", {"given": key})

    @bb.tool
    def large() -> MCPResult:
        """Fail with much to say."""
        return MCPResult.error_result("too many", data={"names": ["x" * 1000] * 3000})

    @bb.tool
    def plenty() -> MCPResult:
        """Go well, with more to say than clients take."""
        return MCPResult(data={"names": ["x" * 1000] * 3000}).add_success("all are there")

    @bb.tool
    def crooked() -> MCPResult:
        """Give an MCPResult that is not in form."""
        return MCPResult(messages=["it broke"])  # type: ignore[list-item]

    @bb.tool(retries=Retry(max_attempts=3, backoff_s=0.01, on=("MCPResult",)))
    def third_time(ctx: TaskContext) -> MCPResult:
        """Go well at the third try."""
        return MCPResult(ctx.attempt == 3, {"attempt": ctx.attempt})

    @bb.tool(retries=2)
    def any_failure(ctx: TaskContext) -> MCPResult:
        """Go well at the second try."""
        return MCPResult(ctx.attempt == 2, {"attempt": ctx.attempt})

    return bb


def make_mcpserver() -> Backburner:
    from mcp.server.mcpserver import MCPServer

    mcp = MCPServer("outcomes", version="1", log_level="WARNING")
    bb = Backburner.attach(mcp, slow=SLOW)
    for function in (*FUNCTIONS, copy_fast):
        mcp.tool()(function)
    return bb


def make_fastmcp() -> Backburner:
    from fastmcp import FastMCP

    mcp = FastMCP("outcomes", version="1")
    bb = Backburner.attach(mcp, slow=SLOW)
    for function in (*FUNCTIONS, copy_fast):
        mcp.tool()(function)
    return bb


def make_lowlevel() -> Backburner:
    from mcp.server.lowlevel import Server

    schema = {"type": "object", "properties": {"well": {"type": "boolean"}}}
    tools = [types.Tool(name=name, description=name, input_schema=schema) for name in (*SLOW, "copy_fast")]

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        well = bool((params.arguments or {}).get("well"))
        said = ordinary() if params.name == "ordinary" else result(well).to_dict()
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=json.dumps(said))]
        if params.name == "copy_unannotated":
            return types.CallToolResult(content=content)
        return types.CallToolResult(content=content, structured_content=said)

    server = Server("outcomes", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    return Backburner.attach(server, slow=SLOW)


MAKERS = {"own": make_own, "lowlevel": make_lowlevel, "mcpserver": make_mcpserver, "fastmcp": make_fastmcp}
bb = MAKERS[os.environ.get("SERVER_KIND", "own")]()

if __name__ == "__main__":
    serve_as_told(bb)
