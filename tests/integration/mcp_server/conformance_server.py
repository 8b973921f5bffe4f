"""The server that the official conformance suite is run against, over HTTP.

    python conformance_server.py http PORT

The fixtures of the task scenarios are here; those of all other scenarios are in
conformance_fixtures.py. The names and shapes are the suite's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from backburner import Backburner, TaskContext
from tests.integration.mcp_server.conformance_fixtures import EventsInMemory, add_fixtures

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

mcp = MCPServer(
    "backburner-conformance",
    version="1",
    log_level="WARNING",
    request_state_security=RequestStateSecurity(keys=[b"a fixed key, since this is only a fixture"]),
)
bb = Backburner.attach(
    mcp,
    slow={
        "slow_compute": {},
        "failing_job": {"task": "required", "retries": 0},
        "protocol_error_job": {"retries": 0},
        "confirm_delete": {},
        "multi_input": {},
    },
)


class Confirm(BaseModel):
    confirm: bool


class NameAndConfirm(BaseModel):
    name: str
    confirm: bool


@mcp.tool()
def greet(name: str) -> str:
    """Greets."""
    return f"Hello, {name}!"


@mcp.tool()
async def slow_compute(seconds: float = 1, label: str = "") -> str:
    """Sleeps, then answers."""
    await asyncio.sleep(seconds)
    return f"computed {label}"


@mcp.tool()
async def failing_job() -> str:
    """Fails as a tool."""
    await asyncio.sleep(1)
    raise ToolError("failed on purpose")


@mcp.tool()
async def protocol_error_job() -> str:
    """Fails as a protocol error."""
    raise MCPError(-32603, "internal failure on purpose")


@mcp.tool()
async def confirm_delete(filename: str, ctx: Context[Any]) -> str:
    """Asks before it deletes."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirm)
    return f"{answer.action}: {filename}"


@mcp.tool()
async def multi_input(ctx: Context[Any]) -> str:
    """Asks two things at once."""
    answers = await asyncio.gather(
        ctx.elicit("First?", NameAndConfirm), ctx.elicit("Second?", NameAndConfirm)
    )
    return " ".join(answer.action for answer in answers)


@bb.tool(task="required", ask_first={"user_name": ("What is your name?", NAME)})
def test_tool_with_task(*, ctx: TaskContext) -> str:
    """Asks first, then becomes a task."""
    return f"Hello, {ctx.answers['user_name'].content['name']}!"


add_fixtures(mcp)


def main() -> None:
    import uvicorn

    port = int(sys.argv[2])
    options = {"event_store": EventsInMemory(), "retry_interval": 100}
    app = bb.http_app(host="127.0.0.1", mcp_options=options)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level=os.environ.get("LOG_LEVEL", "warning"))


if __name__ == "__main__":
    main()
