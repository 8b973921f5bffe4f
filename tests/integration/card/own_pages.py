"""A server of the SDK's whose author has a page of his own for one of his slow tools.

python own_pages.py http PORT
"""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

from backburner import Backburner
from tests.told_transport import serve_as_told

OWN = {"ui": {"resourceUri": "ui://own/chart.html", "visibility": ["model", "app"]}}

mcp = MCPServer("own-pages", log_level="WARNING")
bb = Backburner.attach(mcp, slow=["chart", "table", "by_app"])


@mcp.tool(meta=OWN)
def chart() -> str:
    """Has a page of its own."""
    return "chart"


@mcp.tool()
def table() -> str:
    """Has none."""
    return "table"


@mcp.tool(meta={"ui": {"visibility": ["app"]}})
def by_app() -> str:
    """Says who may call it, and has no page."""
    return "by app"


if __name__ == "__main__":
    serve_as_told(bb)
