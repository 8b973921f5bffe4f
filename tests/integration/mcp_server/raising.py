"""A server whose tools raise protocol errors: ours, the SDK's, and a kind of the SDK's.

python raising.py stdio
python raising.py http PORT
"""

from __future__ import annotations

from typing import Any

from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from backburner import Backburner, ProtocolError
from tests.told_transport import serve_as_told

bb = Backburner("raising")

CODE, MESSAGE, DATA = -32050, "go there first", {"url": "https://example.org/"}


class Place(BaseModel):
    url: str


class GoThereFirst(MCPError):
    """Has a constructor of its own, as the SDK's kinds have."""

    def __init__(self) -> None:
        super().__init__(CODE, MESSAGE, DATA)


class HalfMade(MCPError):
    """Forgot to be one."""

    def __init__(self) -> None:
        pass


ERRORS: dict[str, Any] = {
    "ours": lambda: ProtocolError(CODE, MESSAGE, DATA),
    "sdk": lambda: MCPError(CODE, MESSAGE, DATA),
    "subclass": GoThereFirst,
    "model": lambda: MCPError(CODE, MESSAGE, Place(**DATA)),
    "no data": lambda: MCPError(CODE, MESSAGE),
    "data that is no JSON": lambda: MCPError(CODE, MESSAGE, {"it": object()}),
    "too much data": lambda: MCPError(CODE, MESSAGE, "x" * 2_000_000),
    "half made": HalfMade,
}


@bb.tool(answer="hold")
def held(error: str) -> None:
    """Raise it in the call."""
    raise ERRORS[error]()


@bb.tool(answer="hold")
async def held_async(error: str) -> None:
    """Raise it in the call, from a coroutine."""
    raise ERRORS[error]()


@bb.tool(answer="handle")
def handled(error: str) -> None:
    """Raise it in the background."""
    raise ERRORS[error]()


if __name__ == "__main__":
    serve_as_told(bb)
