"""The tool as most servers have it: a call takes as long as it takes. `python plain_server.py stdio|PORT`"""

from __future__ import annotations

import sys

from crunching import crunch
from mcp.server.mcpserver import MCPServer

server = MCPServer("agents", log_level="ERROR")
server.tool()(crunch)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
