"""A program that watches a task, and finds it again when it is started anew.

python watcher.py TARGET HANDLES GATES

TARGET is an address, or `stdio`. Prints a line for each update and each line of the log.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters

from backburner.client import BackburnerClient, TaskHandle


async def show_updates(handle: TaskHandle) -> None:
    async for update in handle.watch():
        progress = update.progress.message if update.progress else None
        if progress or update.finished:
            print(f"update {progress or update.status}", flush=True)
    print(f"result {(await handle.result()).content[0].text}", flush=True)  # type: ignore[union-attr]


async def show_logs(handle: TaskHandle) -> None:
    async for line in handle.logs(follow=True):
        print(f"log {line.message}", flush=True)


async def main(target: Any, handles: str, gates: str) -> None:
    if target == "stdio":
        script = str(Path(__file__).with_name("app.py"))
        target = StdioServerParameters(command=sys.executable, args=[script, "stdio"], env=dict(os.environ))
    async with BackburnerClient(target, handles=handles) as client:
        found = await client.open_handles()
        handle = found[0] if found else await client.start("gates", folder=gates, n=4)
        print("found" if found else "started", flush=True)
        await asyncio.gather(show_updates(handle), show_logs(handle))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
