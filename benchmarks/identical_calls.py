"""The same call made 20,000 times, with no result fetched: the server's CPU time for one submit.

The server looks for an earlier call to join on each submit. BENCHMARK_CALLS is the largest number of calls.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time

import psutil
from rich.console import Console
from rich.table import Table

from .over_mcp import CLIENTS, SERVERS, connected, served, together
from .over_mcp.light_client import LightClient
from .peers.contenders.shapes import RUN, marked

#: Numbers of open calls at which submits are measured.
MARKS = (0, 2_000, 8_000, 20_000)
MEASURED, WARM = 300, 200
#: Calls stay open for the whole run: no client fetches a result.
ATTENDED = "BACKBURNER_MCP__ATTENDED_S"


def main() -> None:
    most = int(os.environ.get("BENCHMARK_CALLS", MARKS[-1]))
    os.environ[ATTENDED] = "86400"
    with tempfile.TemporaryDirectory(prefix="backburner-identical-") as folder:
        command = [sys.executable, str(SERVERS / "backburner_server.py")]
        with served(command, f"sqlite:///{folder}/tasks.db") as port:
            rows = asyncio.run(measure(port, [mark for mark in MARKS if mark <= most]))
    table = Table("open calls", "server's CPU ms a submit", "submit p50 ms", title="Identical calls")
    for mark, cpu_ms, median_ms in rows:
        table.add_row(f"{mark:,}", f"{cpu_ms:.2f}", f"{median_ms:.2f}")
    Console().print(table)


async def measure(port: int, marks: list[int]) -> list[tuple[int, float, float]]:
    """Return the CPU time and the median time of a submit, in ms, for each number of open calls."""
    server = next(psutil.Process(pid) for pid in marked(os.environ[RUN]) if _serves(pid, port))
    rows, made = [], 0
    async with connected(port, CLIENTS) as clients:
        client = clients[0]
        await together(clients, "nothing", WARM, LightClient.run)
        for mark in marks:
            await together(clients, "nothing", mark - made, LightClient.call)
            before, took = _cpu_s(server), [await _submit_s(client) for _ in range(MEASURED)]
            rows.append((mark, (_cpu_s(server) - before) / MEASURED * 1000, statistics.median(took) * 1000))
            made = mark + MEASURED
    return rows


def _serves(pid: int, port: int) -> bool:
    return str(port) in psutil.Process(pid).cmdline()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _submit_s(client: LightClient) -> float:
    began = time.perf_counter()
    await client.call("nothing")
    return time.perf_counter() - began
