"""A server of the official SDK that existed before: one line makes its slow tools tasks."""

import anyio
from mcp.server.mcpserver import Context, MCPServer

from backburner import Backburner

mcp = MCPServer("library")


@mcp.tool()
async def index_books(count: int, ctx: Context) -> str:
    """Index the books of the library. It takes a while."""
    for book in range(count):
        await ctx.report_progress(book, count, f"book {book + 1} of {count}")
        await anyio.sleep(0.01)
    return f"{count} books indexed"


@mcp.tool()
def find_book(title: str) -> str:
    """Find a book. It is quick, so it stays as it is."""
    return f"{title} is on shelf {len(title)}"


bb = Backburner.attach(mcp, slow=["index_*"])

if __name__ == "__main__":
    mcp.run()
