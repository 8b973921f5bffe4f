"""`Tasks` as an extension of MCPServer and FastMCP equals `Backburner.attach`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from backburner import Tasks
from backburner.errors import ConfigError
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect

TOOLS = """

@mcp.tool()
def relax(steps: int) -> str:
    return f"{steps} steps"


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    mcp.run()
"""
SDK, FASTMCP = "from mcp.server.mcpserver import MCPServer\n", "from fastmcp import FastMCP\n"
SERVERS = {
    "MCPServer": (
        f'{SDK}from backburner import Tasks\nmcp = MCPServer("lab", extensions=[Tasks(slow=["relax"])])',
        f"{SDK}from backburner import Backburner\n"
        'mcp = MCPServer("lab")\nbb = Backburner.attach(mcp, slow=["relax"])',
    ),
    "FastMCP": (
        f"{FASTMCP}from backburner import Tasks\n"
        'mcp = FastMCP("lab")\nmcp.add_extension(Tasks(slow=["relax"]))',
        f"{FASTMCP}from backburner import Backburner\n"
        'mcp = FastMCP("lab")\nbb = Backburner.attach(mcp, slow=["relax"])',
    ),
}


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("framework", SERVERS)
async def test_a_server_with_the_extension_does_what_an_attached_one_does(
    framework: str, tmp_path: Path
) -> None:
    seen = [await _use(tmp_path, code) for code in SERVERS[framework]]
    assert seen[0] == seen[1]
    assert seen[0]["task"] == "3 steps"


def _deployed(folder: Path, code: str) -> Deployment:
    server = folder / "lab.py"
    server.write_text(code + TOOLS)
    return Deployment(folder, (server,))


async def _use(folder: Path, code: str) -> dict[str, Any]:
    with _deployed(folder, code) as deployment:
        async with connect(deployment.stdio(), "2026") as peer:
            done = await peer.poll(await peer.start("relax", {"steps": 3}))
            listed = await peer.request("tools/list")
            fast = await peer.call("add", {"a": 1, "b": 2})
        async with connect(deployment.stdio(), "2025", tasks=False) as peer:
            held = await peer.call("relax", {"steps": 4})
    return {
        "tools": listed["tools"],
        "task": done["result"]["content"][0]["text"],
        "fast": fast["content"],
        "held": held["content"],
    }


def test_an_extension_outside_a_server_says_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r"MCPServer\(extensions="):
        Tasks(slow=["relax"]).settings()


@pytest.mark.parametrize(
    "register",
    [
        lambda tasks: MCPServer("other", extensions=[tasks]),
        lambda tasks: FastMCP("other").add_extension(tasks),
    ],
    ids=["MCPServer", "FastMCP"],
)
def test_an_extension_is_refused_by_a_second_server(register: Callable[[Tasks], object]) -> None:
    tasks = Tasks(slow=["relax"], store="sqlite://", target=f"{__file__}:TOOLS")
    MCPServer("lab", extensions=[tasks])
    with pytest.raises(ConfigError, match="one for each server"):
        register(tasks)
