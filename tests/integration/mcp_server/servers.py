"""The same server on each framework: what the tests of the surfaces talk to.

    python servers.py stdio
    python servers.py http PORT

The store is what BACKBURNER_STORE says, and the framework what SERVER_KIND says: a runner, which imports this
file too, has the environment but not the arguments. For an app of our own it needs no SDK, whose import would
treble its start.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from pydantic import BaseModel

from backburner import Backburner, ProtocolError, TaskContext
from tests.told_transport import serve_as_told

SLOW: dict[str, dict[str, Any]] = {
    "slow": {},
    "ask": {},
    "ask_two": {},
    "fail": {"retries": 0},
    "protocol_error": {"retries": 0},
    "must": {"task": "required"},
    "never": {"task": "never"},
    "short": {"timeout": "0.5s", "retries": 0},
    "hold": {"answer": "hold"},
    "quick_handle": {"answer": "handle"},
    "asks_first": {
        "ask_first": {
            "user": (
                "Your name?",
                {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            )
        }
    },
}
_OWN_ONLY = ("asks_first",)


class Name(BaseModel):
    name: str


def make_own() -> Backburner:
    """A server that is nothing but an app: every tool is a plain function."""
    bb = Backburner("surfaces")

    @bb.tool(**SLOW["slow"])
    def slow(n: int = 3, step_s: float = 0.02, *, ctx: TaskContext) -> str:
        """Count to n."""
        for i in range(n):
            if ctx.wait_cancelled(step_s):
                ctx.raise_if_cancelled()
            ctx.progress(i + 1, n, phase="counting", message=f"step {i + 1}")
            ctx.log(f"step {i + 1}")
        return f"slow done n={n}"

    @bb.tool(**SLOW["ask"])
    def ask(ctx: TaskContext) -> str:
        """Ask for a name."""
        answer = ctx.ask("Your name?", Name.model_json_schema())
        return f"Hello, {answer.content['name']}!" if answer.accepted else f"no: {answer.action}"

    @bb.tool(**SLOW["ask_two"])
    def ask_two(ctx: TaskContext) -> str:
        """Ask for two names at once."""
        schema = Name.model_json_schema()
        answers = ctx.ask_all({"first": ("First?", schema), "second": ("Second?", schema)})
        return " and ".join(str(answer.content and answer.content["name"]) for answer in answers.values())

    @bb.tool(**SLOW["fail"])
    def fail() -> str:
        """Fail."""
        raise RuntimeError("it broke")

    @bb.tool(**SLOW["protocol_error"])
    def protocol_error() -> str:
        """Fail with a protocol error."""
        raise ProtocolError(-32050, "no such thing", {"x": 1})

    @bb.tool(**SLOW["must"])
    def must() -> str:
        """Only as a task."""
        return "must done"

    @bb.tool(**SLOW["never"])
    def never() -> str:
        """Never as a task."""
        return "never done"

    @bb.tool(**SLOW["short"])
    def short() -> str:
        """Take too long."""
        time.sleep(60)
        return "not reached"

    @bb.tool(**SLOW["hold"])
    def hold(step_s: float = 0.1) -> dict[str, Any]:
        """Answer in the call."""
        time.sleep(step_s)
        return {"held": True}

    @bb.tool(**SLOW["quick_handle"])
    def quick_handle() -> str:
        """Answer with a handle."""
        return "handled"

    @bb.tool(**SLOW["asks_first"])
    def asks_first(ctx: TaskContext) -> str:
        """Ask before the work begins."""
        answer = ctx.answers["user"]
        return f"Hello, {answer.content['name']}!" if answer.accepted else f"no: {answer.action}"

    @bb.tool
    def big(size: int = 300_000, *, ctx: TaskContext) -> str:
        """Return a large result, and make a file."""
        ctx.artifact(b"\x00\x01" * 1000, name="data.bin", kind="data")
        return "é" * size

    return bb


def add_tools(mcp: Any, context: Any) -> None:
    """The tools, as both decorating frameworks take them; `context` is the framework's own Context."""

    def fast(x: int = 1) -> str:
        """Quick."""
        return f"fast {x}"

    async def slow(ctx: Any, n: int = 3, step_s: float = 0.02) -> str:
        """Count to n."""
        for i in range(n):
            await asyncio.sleep(step_s)
            await ctx.report_progress(i + 1, n, f"step {i + 1}")
            await ctx.info(f"step {i + 1}")
        return f"slow done n={n}"

    async def ask(ctx: Any) -> str:
        """Ask for a name."""
        answer = await ctx.elicit("Your name?", Name)
        return f"Hello, {answer.data.name}!" if answer.action == "accept" else f"no: {answer.action}"

    async def ask_two(ctx: Any) -> str:
        """Ask for two names at once."""
        one, two = await asyncio.gather(ctx.elicit("First?", Name), ctx.elicit("Second?", Name))
        return f"{one.data.name} and {two.data.name}"

    def fail() -> str:
        """Fail."""
        raise RuntimeError("it broke")

    def protocol_error() -> str:
        """Fail with a protocol error: ours, since FastMCP makes a result of an MCPError."""
        raise ProtocolError(-32050, "no such thing", {"x": 1})

    def must() -> str:
        """Only as a task."""
        return "must done"

    def never() -> str:
        """Never as a task."""
        return "never done"

    def short() -> str:
        """Take too long."""
        time.sleep(60)
        return "not reached"

    def hold(step_s: float = 0.1) -> str:
        """Answer in the call."""
        time.sleep(step_s)
        return "held"

    def quick_handle() -> str:
        """Answer with a handle."""
        return "handled"

    functions: list[Any] = [
        fast,
        slow,
        ask,
        ask_two,
        fail,
        protocol_error,
        must,
        never,
        short,
        hold,
        quick_handle,
    ]
    for function in functions:
        # Annotations are text in this file, and a framework could not resolve a name that is local here.
        known: dict[str, Any] = {"str": str, "int": int, "float": float, "Any": context}
        function.__annotations__ = {name: known[kind] for name, kind in function.__annotations__.items()}
        mcp.tool()(function)


def make_mcpserver() -> Backburner:
    from mcp.server.mcpserver import Context, MCPServer

    mcp = MCPServer("surfaces", version="1", log_level="WARNING")
    bb = Backburner.attach(mcp, slow={name: SLOW[name] for name in SLOW if name not in _OWN_ONLY})
    add_tools(mcp, Context)
    return bb


def make_fastmcp() -> Backburner:
    from fastmcp import Context, FastMCP

    mcp = FastMCP("surfaces", version="1")
    bb = Backburner.attach(mcp, slow={name: SLOW[name] for name in SLOW if name not in _OWN_ONLY})
    add_tools(mcp, Context)
    return bb


def make_lowlevel() -> Backburner:
    import mcp_types as types
    from mcp.server.lowlevel import Server

    def listed(name: str, **properties: str) -> types.Tool:
        fields = {key: {"type": kind} for key, kind in properties.items()}
        return types.Tool(name=name, description=name, input_schema={"type": "object", "properties": fields})

    tools = [
        listed("fast", x="integer"),
        listed("slow", n="integer", step_s="number"),
        listed("hold", step_s="number"),
        *(listed(name) for name in SLOW if name not in ("slow", "hold", *_OWN_ONLY)),
    ]

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text, is_error = await lowlevel_tool(ctx, params.name, params.arguments or {})
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    server = Server("surfaces", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    return Backburner.attach(server, slow={name: SLOW[name] for name in SLOW if name not in _OWN_ONLY})


async def lowlevel_tool(ctx: Any, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    async def elicit(message: str) -> Any:
        return await ctx.session.elicit_form(message, Name.model_json_schema(), ctx.request_id)

    if name == "slow":
        n = arguments.get("n", 3)
        for i in range(n):
            await asyncio.sleep(arguments.get("step_s", 0.02))
            await ctx.session.report_progress(i + 1, n, f"step {i + 1}")
        return f"slow done n={n}", False
    if name == "ask":
        answer = await elicit("Your name?")
        accepted = answer.action == "accept"
        return (f"Hello, {answer.content['name']}!" if accepted else f"no: {answer.action}"), False
    if name == "ask_two":
        one, two = await asyncio.gather(elicit("First?"), elicit("Second?"))
        return f"{one.content['name']} and {two.content['name']}", False
    if name == "fail":
        return "it broke", True
    if name == "protocol_error":
        from mcp.shared.exceptions import MCPError

        raise MCPError(-32050, "no such thing", {"x": 1})
    if name == "short":
        await asyncio.sleep(60)
    if name == "hold":
        await asyncio.sleep(arguments.get("step_s", 0.1))
        return "held", False
    done = {"fast": f"fast {arguments.get('x', 1)}", "quick_handle": "handled"}
    return done.get(name, f"{name} done"), False


MAKERS = {"own": make_own, "lowlevel": make_lowlevel, "mcpserver": make_mcpserver, "fastmcp": make_fastmcp}


def make() -> Backburner:
    return MAKERS[os.environ.get("SERVER_KIND", "own")]()


bb = make()

if __name__ == "__main__":
    serve_as_told(bb)
