"""A tool whose calls are held for long, with Backburner: `python server.py PORT STORE`."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from typing import Any

from backburner import Backburner
from backburner.tools.spec import ToolSpec

STORE = "BENCHMARK_STORE"

bb = Backburner(
    "held",
    store=os.environ.setdefault(STORE, sys.argv[2] if len(sys.argv) > 2 else "sqlite://"),
    queues={"io": {"workers": 64, "max_length": 10_000}},
    http={"max_connections": 10_000},
)
#: A release that knows of joining joins calls that are made again, whether or not the first still waits.
joining: dict[str, Any] = (
    {"join": "always"} if "join" in {field.name for field in dataclasses.fields(ToolSpec)} else {}
)


@bb.tool(**joining)
async def take_long(number: int) -> str:
    """Take longer than the benchmark does."""
    await asyncio.sleep(600)
    return f"{number}"


if __name__ == "__main__":
    from backburner.mcp.transport.run import run_http

    run_http(bb, "127.0.0.1", int(sys.argv[1]), log_level="error")
