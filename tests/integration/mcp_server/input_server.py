"""Tools that need something of their client: as functions of an app, and on each framework by its own means.

    python input_server.py stdio
    python input_server.py http PORT

`SERVER_KIND` says which framework it is. Tools of an attached server return `InputRequiredResult`, and are
called again with the answers; functions ask by `ctx.ask`.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import mcp_types as types

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SLOW: dict[str, dict[str, Any]] = {
    "two_rounds": {},
    "late": {},
    "sample": {},
    "not_yet": {},
    "never_content": {"retries": 0},
    "asks_first": {"ask_first": {"user": ("Your name?", NAME)}},
}


def asking(state: str | None, **messages: str) -> types.InputRequiredResult:
    requests: dict[str, Any] = {
        key: types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=NAME))
        for key, message in messages.items()
    }
    return types.InputRequiredResult(input_requests=requests or None, request_state=state)


def said(responses: Any, key: str) -> str:
    answer = responses[key]
    return str(answer.content["name"]) if answer.action == "accept" else str(answer.action)


def wait_for(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.01)


async def answer(
    tool: str, arguments: dict[str, Any], responses: Any, state: str | None
) -> str | types.InputRequiredResult:
    """What the tools of the attached servers do, with what their framework tells them."""
    if tool == "two_rounds":
        if not responses:
            return asking("first", who="Who?")
        if state == "first":
            return asking(f"{state}, {said(responses, 'who')}", where="Where?", when="When?")
        return f"{state}, {said(responses, 'where')}, {said(responses, 'when')}"
    if tool == "late":
        if responses:
            return said(responses, "who")
        await asyncio.to_thread(wait_for, arguments["gate"])
        return asking(None, who="Who?")
    if tool == "sample":
        if responses:
            return str(responses["poem"].content.text)
        words = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="A poem!"))
        params = types.CreateMessageRequestParams(messages=[words], max_tokens=10)
        return types.InputRequiredResult(input_requests={"poem": types.CreateMessageRequest(params=params)})
    if tool == "not_yet":
        return "done" if state == "again" else asking("again")
    if tool == "never_content":
        return asking("again")
    return said(responses, "user")


def make_own() -> Backburner:
    bb = Backburner("input")

    @bb.tool
    def late(gate: str, ctx: TaskContext) -> str:
        wait_for(gate)
        answered = ctx.ask("Who?", NAME)
        return str((answered.content or {}).get("name", answered.action))

    return bb


def decorated(mcp: Any, context: Any) -> None:
    """The tools, as both decorating frameworks take them."""

    async def two_rounds(ctx: Any) -> Any:
        return await answer("two_rounds", {}, ctx.input_responses, ctx.request_state)

    async def late(ctx: Any, gate: str) -> Any:
        return await answer("late", {"gate": gate}, ctx.input_responses, ctx.request_state)

    async def sample(ctx: Any) -> Any:
        return await answer("sample", {}, ctx.input_responses, ctx.request_state)

    async def not_yet(ctx: Any) -> Any:
        return await answer("not_yet", {}, ctx.input_responses, ctx.request_state)

    async def never_content(ctx: Any) -> Any:
        return await answer("never_content", {}, ctx.input_responses, ctx.request_state)

    async def asks_first(ctx: Any) -> Any:
        return await answer("asks_first", {}, ctx.input_responses, ctx.request_state)

    functions: list[Any] = [two_rounds, late, sample, not_yet, never_content, asks_first]
    for function in functions:
        gate = {"gate": str} if function is late else {}
        function.__annotations__ = {"ctx": context, **gate, "return": str | types.InputRequiredResult}
        mcp.tool()(function)


def make_mcpserver() -> Backburner:
    from mcp.server.mcpserver import Context, MCPServer

    mcp = MCPServer("input", version="1", log_level="WARNING")
    decorated(mcp, Context)
    return Backburner.attach(mcp, slow=SLOW)


def make_fastmcp() -> Backburner:
    from fastmcp import Context, FastMCP

    mcp = FastMCP("input", version="1")
    decorated(mcp, Context)
    return Backburner.attach(mcp, slow=SLOW)


def make_lowlevel() -> Backburner:
    from mcp.server.lowlevel import Server

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"gate": {"type": "string"}}}
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in SLOW])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
        arguments, responses = params.arguments or {}, params.input_responses
        result = await answer(params.name, arguments, responses, params.request_state)
        if isinstance(result, str):
            return types.CallToolResult(content=[types.TextContent(type="text", text=result)])
        return result

    server = Server("input", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    return Backburner.attach(server, slow=SLOW)


MAKERS = {"own": make_own, "lowlevel": make_lowlevel, "mcpserver": make_mcpserver, "fastmcp": make_fastmcp}

bb = MAKERS[os.environ.get("SERVER_KIND", "own")]()

if __name__ == "__main__":
    serve_as_told(bb)
