"""A server that can be made to run out of file descriptors, and to have some again.

python exhausting_server.py stdio
"""

from __future__ import annotations

import os
import resource

from mcp.server.mcpserver import MCPServer

from backburner import Backburner

mcp = MCPServer("exhausting", version="1", log_level="WARNING")
bb = Backburner.attach(mcp, slow=["slow"])
_taken: list[int] = []


@mcp.tool()
def slow() -> str:
    """Take a while."""
    return "slow done"


@mcp.tool()
def exhaust() -> str:
    """Take every descriptor that is left."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            _taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return str(error)


@mcp.tool()
def recover() -> str:
    """Give them back."""
    while _taken:
        os.close(_taken.pop())
    return "recovered"


if __name__ == "__main__":
    bb.run()
