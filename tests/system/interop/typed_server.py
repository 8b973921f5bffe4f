"""A server of FastMCP with typed tools, attached: `python typed_server.py stdio`, or `http PORT`."""

import time

from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from pydantic import BaseModel

from backburner import Backburner
from tests.told_transport import serve_as_told


class Relaxed(BaseModel):
    energy: float
    steps: list[int]
    notes: str


mcp = FastMCP("typed", version="1")


@mcp.tool
def relax(seconds: float = 0, steps: int = 3, notes: str = "well") -> Relaxed:
    """Take so long, and give a model."""
    time.sleep(seconds)
    return Relaxed(energy=-1.5, steps=list(range(steps)), notes=notes)


@mcp.tool
def write(length: int) -> str:
    """Give a text of that length."""
    return "x" * length


@mcp.tool
def draw(length: int) -> list[str | Image]:
    """Give an image of that length between two texts."""
    return ["before", Image(data=b"\x89PNG" + bytes(length - 4), format="png"), "after"]


@mcp.tool
def draw_later(length: int) -> list[str | Image]:
    """The same behind a handle."""
    return draw(length)


@mcp.tool(output_schema=None)
def untyped(seconds: float = 0, length: int = 10) -> str:
    """Take so long, and give a text with no schema."""
    time.sleep(seconds)
    return "x" * length


HOLD = {"answer": "hold"}  # so that only what is typed depends on patience
bb = Backburner.attach(mcp, slow={"draw": HOLD, "untyped": HOLD, "draw_later": {"answer": "handle"}, "*": {}})

if __name__ == "__main__":
    serve_as_told(bb)
