"""Attached tools that raise, on the framework that SERVER_KIND names.

python raising_attached.py stdio
python raising_attached.py http PORT
"""

import os
from pathlib import Path
from typing import Any

from backburner import Backburner, Retry
from tests.told_transport import serve_as_told


def deep_in_the_tool() -> str:
    raise ConnectionResetError("the line went dead")


def crashes() -> str:
    return deep_in_the_tool()


def works_the_second_time(file: str) -> str:
    if not Path(file).exists():
        Path(file).touch()
        deep_in_the_tool()
    return "attempt 2"


def make() -> Backburner:
    server: Any
    if os.environ["SERVER_KIND"] == "mcpserver":
        from mcp.server.mcpserver import MCPServer

        server = MCPServer("raising", version="1")
    else:
        from fastmcp import FastMCP

        server = FastMCP("raising", version="1", mask_error_details=True)
    server.tool(name="crashes")(crashes)
    for name in ("works_the_second_time", "by_name", "of_another_kind"):
        server.tool(name=name)(works_the_second_time)
    causes: dict[str, Any] = {
        "works_the_second_time": ConnectionError,
        "by_name": "ConnectionResetError",
        "of_another_kind": KeyError,
    }
    slow = {name: {"retries": Retry(3, 0.05, on=cause)} for name, cause in causes.items()}
    return Backburner.attach(server, slow={**slow, "crashes": {"retries": 0}})


if "SERVER_KIND" in os.environ:
    bb = make()

if __name__ == "__main__":
    serve_as_told(bb)
