"""A thousand held calls in one server, and a thousand that join them: memory a call, and the ping meanwhile.

The callers are bare connections without an SDK. BENCHMARK_CALLS is how many of each there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from backburner.store import open_store
from backburner.store.protocol import Store

from ..agents.connections import MODERN, Http
from ..over_mcp import served
from ..peers.contenders.shapes import RUN, marked
from ..report import Results
from ..targets import HELD, HELD_KB, JOINED_KB, PING_ALONE, PING_HELD, PING_JOINED

SERVER = Path(__file__).parent / "server.py"
PINGS = 200
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    # Its calls are held for as long as they take, and it has no tasks.
    "io.modelcontextprotocol/clientInfo": {"name": "backburner-held", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def main() -> Results:
    count = int(os.environ.get("BENCHMARK_CALLS", "1000"))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = Results()
    with tempfile.TemporaryDirectory(prefix="backburner-held-") as folder:
        place = f"sqlite:///{folder}/tasks.db"
        with served([sys.executable, str(SERVER)], place) as port:
            figures, tasks = asyncio.run(measure(port, place, count))
    results.figures[HELD] = figures
    table = Table("", "figure", title=f"{count} held calls and {count} more of the same, {tasks} tasks")
    for name, figure in figures.items():
        table.add_row(name, f"{figure:.1f}")
    Console().print(table)
    return results


async def measure(port: int, place: str, count: int) -> tuple[dict[str, float], int]:
    """The figures, and how many tasks the calls have become."""
    server = next(psutil.Process(pid) for pid in marked(os.environ[RUN]) if _serves(pid, port))
    pinging = Http("pinging", "1", "2025-11-25", {})
    pinging.connect(port)
    await pinging.open()
    store = open_store(place)
    calls = [await _call(port, -1)]
    await _settled(store)
    alone, empty = await _ping_p99_ms(pinging), server.memory_info().rss
    calls += [await _call(port, number) for number in range(count)]
    await _settled(store)
    with_held, held = await _ping_p99_ms(pinging), server.memory_info().rss
    calls += [await _call(port, number) for number in range(count)]
    await _settled(store)
    with_joined, joined = await _ping_p99_ms(pinging), server.memory_info().rss
    tasks = _count(store) - 1
    for _, writer in calls:
        writer.close()
    await pinging.close()
    store.close()
    return {
        HELD_KB: (held - empty) / count / 1024,
        JOINED_KB: (joined - held) / count / 1024,
        PING_ALONE: alone,
        PING_HELD: with_held,
        PING_JOINED: with_joined,
    }, tasks


def _serves(pid: int, port: int) -> bool:
    return str(port) in psutil.Process(pid).cmdline()


def _count(store: Store) -> int:
    return sum(store.count_states().values())


async def _settled(store: Store) -> None:
    """Wait until no task has come for a while: then every call that was sent is held."""
    before = -1
    while (there := await asyncio.to_thread(_count, store)) != before:
        before = there
        await asyncio.sleep(2)


async def _call(port: int, number: int) -> Connection:
    """A call that was sent, whose answer nobody reads."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    params = {"name": "take_long", "arguments": {"number": number}, "_meta": _META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    writer.write(
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: take_long\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    return reader, writer


async def _ping_p99_ms(pinging: Http) -> float:
    took = []
    for _ in range(PINGS):
        began = time.perf_counter()
        await pinging.request("ping", {})
        took.append(time.perf_counter() - began)
    return sorted(took)[PINGS * 99 // 100] * 1000
