"""A FastMCP server that existed before: one line makes its slow tools tasks (extra `fastmcp`)."""

import asyncio

from fastmcp import Context, FastMCP

from backburner import Backburner

mcp = FastMCP("library")


@mcp.tool
async def index_books(count: int, ctx: Context) -> str:
    """Index the books of the library. It takes a while."""
    for book in range(count):
        await ctx.report_progress(book, count, f"book {book + 1} of {count}")
        await asyncio.sleep(0.01)
    return f"{count} books indexed"


@mcp.tool
def find_book(title: str) -> str:
    """Find a book. It is quick, so it stays as it is."""
    return f"{title} is on shelf {len(title)}"


bb = Backburner.attach(mcp, slow={"index_*": {"timeout": "1h", "retries": 1}})

if __name__ == "__main__":
    mcp.run()
