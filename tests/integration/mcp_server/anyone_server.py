"""Tools that ask anyone who can answer, and one that asks its client alone.

python anyone_server.py stdio

`SERVER_KIND` is `own` (functions of an app) or `mcpserver` (tools of an attached server).
"""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from backburner import Backburner, TaskContext


class Name(BaseModel):
    name: str


def own() -> Backburner:
    bb = Backburner("anyone")

    @bb.tool(asks="anyone")
    def book(ctx: TaskContext) -> str:
        """Book a room."""
        answer = ctx.ask("Who books?", Name.model_json_schema())
        return answer.content["name"] if answer.accepted else answer.action

    @bb.tool
    def confirm(ctx: TaskContext) -> str:
        """Ask the client."""
        return ctx.ask("Really?").action

    return bb


def attached() -> Backburner:
    server = MCPServer("anyone")

    @server.tool()
    async def book(ctx: Context) -> str:
        """Book a room."""
        answer = await ctx.elicit("Who books?", Name)
        return answer.data.name if answer.action == "accept" else answer.action

    @server.tool()
    async def confirm(ctx: Context) -> str:
        """Ask the client."""
        return (await ctx.elicit("Really?", Name)).action

    return Backburner.attach(server, slow={"book": {"asks": "anyone"}, "confirm": {}})


bb = own() if os.environ.get("SERVER_KIND") == "own" else attached()

if __name__ == "__main__" and sys.argv[1] == "stdio":
    bb.run()
