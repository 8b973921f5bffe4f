"""The server under test: tools of 0.2 to 200 seconds, and two that outlast hosts.

Each run of a tool appends a line to the file `ledger` in the folder $LAB.
"""

import os
import time
from pathlib import Path

import anyio

from backburner import Backburner

LAB = Path(os.environ.get("LAB", "."))
ANSWER = "The answer is 42."
#: Longer than the default timeouts that are known.
ENDLESS_S = 660

bb = Backburner("lab", store=f"sqlite:///{LAB}/lab.db")


async def _report(tool: str, seconds: float) -> str:
    with (LAB / "ledger").open("a") as ledger:
        ledger.write(f"{time.time():.3f} {tool}\n")
    await anyio.sleep(seconds)
    return f"Report of {tool}. {ANSWER}"


@bb.tool
async def quick() -> str:
    """Make a quick report."""
    return await _report("quick", 0.2)


@bb.tool
async def short() -> str:
    """Make a short report."""
    return await _report("short", 3)


@bb.tool(estimate=3)
async def estimated() -> str:
    """Make a short report whose run time the author has estimated."""
    return await _report("estimated", 3)


@bb.tool
async def medium() -> str:
    """Make a medium report."""
    return await _report("medium", 45)


@bb.tool
async def long() -> str:
    """Make a long report."""
    return await _report("long", 200)


@bb.tool(task="never")
async def silent() -> str:
    """Answer late, without progress."""
    return await _report("silent", ENDLESS_S)


@bb.tool(answer="hold")
async def lively() -> str:
    """Answer late, with progress."""
    return await _report("lively", ENDLESS_S)


if __name__ == "__main__":
    bb.run()
