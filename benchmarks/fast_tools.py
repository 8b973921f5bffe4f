"""What a fast tool pays for the slow ones: its calls with Backburner attached, against those without.

The calls alternate, so that what else the machine does meets both. The aim is at most 1.1 times.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from mcp.client import Client
from mcp.server.mcpserver import MCPServer
from rich.console import Console
from rich.table import Table

from backburner import Backburner

CALLS = {"memory": 1500, "http": 400}


def main() -> None:
    table = Table(
        "transport", "protocol", "without, ms", "with, ms", "ratio", title="A fast tool's call, median"
    )
    for transport in CALLS:
        for mode in ("2026-07-28", "legacy"):
            plain_ms, attached_ms = asyncio.run(measure(transport, mode))
            ratio = f"{attached_ms / plain_ms:.2f}"
            table.add_row(transport, mode, f"{plain_ms:.3f}", f"{attached_ms:.3f}", ratio)
    Console().print(table)


async def measure(transport: str, mode: Any) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="backburner-fast-") as folder:
        server = make_server()
        bb = Backburner.attach(
            server,
            slow=["slow_*"],
            store=f"sqlite:///{folder}/tasks.db",
            supervisor={"idle_exit_s": 1},
            target="engine_app.py:bb",  # no slow tool is called
        )
        try:
            async with (
                target(make_server(), transport) as one,
                target(server, transport) as two,
                Client(one, mode=mode) as plain,
                Client(two, mode=mode) as attached,
            ):
                await medians_ms(plain, attached, 50)
                return await medians_ms(plain, attached, CALLS[transport])
        finally:
            bb.close()


async def medians_ms(plain: Client, attached: Client, calls: int) -> tuple[float, float]:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(calls):
        for took, client in zip(times, (plain, attached), strict=True):
            began = time.perf_counter()
            await client.call_tool("fast", {"x": number})
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(times[0]), statistics.median(times[1])


def make_server() -> MCPServer[Any]:
    mcp: MCPServer[Any] = MCPServer("fast", log_level="ERROR")

    @mcp.tool()
    def fast(x: int = 1) -> str:
        return f"fast {x}"

    return mcp


@contextlib.asynccontextmanager
async def target(server: MCPServer[Any], transport: str) -> AsyncIterator[Any]:
    """What a client connects to: the server itself, or its address."""
    if transport == "memory":
        yield server
        return
    web = uvicorn.Server(
        uvicorn.Config(server.streamable_http_app(), port=0, log_level="error", lifespan="on")
    )
    serving = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        web.should_exit = True
        await serving


if __name__ == "__main__":
    main()
