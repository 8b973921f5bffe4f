"""Tasks over MCP (Streamable HTTP, 2026-07-28), beside fastmcp-tasks: both with their defaults, in one run.

A light client submits and then asks every 5 ms; CPU is that of the server and of all that it starts. Set
BENCHMARK_TASKS to another number of tasks than 2000.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.interop.environment import Unavailable, python
from tests.services import free_port, wait_until

from ..peers import ended_afterwards, services
from ..peers.contenders.shapes import RUN, SERVICES, cpu_s
from .light_client import LightClient

SERVERS = Path(__file__).parent / "servers"
CLIENTS = 16
WAITING = 50

Figures = dict[str, float]


def main() -> None:
    tasks = int(os.environ.get("BENCHMARK_TASKS", "2000"))
    found: dict[str, Figures] = {}
    with services() as there, tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder:
        redis = there.get("redis")
        entries: dict[str, tuple[str, str, str]] = {
            "Backburner SQLite": ("", "backburner_server.py", f"sqlite:///{folder}/tasks.db"),
            "fastmcp-tasks in memory": ("fastmcp", "fastmcp_server.py", "memory://"),
        }
        if redis is not None:
            entries["fastmcp-tasks Redis"] = ("fastmcp", "fastmcp_server.py", redis.place(0))
        for title, (environment, program, place) in entries.items():
            os.environ[SERVICES] = str(redis.server.pid) if redis is not None and "redis" in place else ""
            print(f"{title} …", file=sys.stderr, flush=True)
            try:
                interpreter = str(python(environment)) if environment else sys.executable
                with served([interpreter, str(SERVERS / program)], place) as port:
                    found[title] = asyncio.run(measure(port, tasks))
            except Unavailable as error:
                print(f"{title} is left out: {error}", file=sys.stderr)
    Console(width=110).print(as_table(found))


async def measure(port: int, tasks: int) -> Figures:
    async with connected(port, WAITING) as clients:
        waiting = await _timed(lambda: _together(clients, "wait_a_second", WAITING, LightClient.run))
    plain, submit = [], []
    async with connected(port, 1) as (client,):
        for _ in range(max(50, tasks // 8)):
            plain.append(await _timed(lambda: client.call("plain")))
            submit.append(await _timed(lambda: client.call("nothing")))
    async with connected(port, CLIENTS) as clients:
        ran, run_cpu = await _with_cpu(lambda: _together(clients, "nothing", tasks, LightClient.run))
        submitted, submit_cpu = await _with_cpu(
            lambda: _together(clients, "nothing", tasks, LightClient.call)
        )
        called, call_cpu = await _with_cpu(lambda: _together(clients, "plain", tasks, LightClient.call))
    return {
        "tasks/s, 16 clients": tasks / ran,
        "CPU ms a task": run_cpu / tasks * 1000,
        "submit p50 ms": statistics.median(submit) * 1000,
        "plain call p50 ms": statistics.median(plain) * 1000,
        "submit / plain call": statistics.median(submit) / statistics.median(plain),
        "submits/s, 16 clients": tasks / submitted,
        "CPU ms a submit": submit_cpu / tasks * 1000,
        "plain calls/s, 16 clients": tasks / called,
        "CPU ms a plain call": call_cpu / tasks * 1000,
        f"{WAITING} async tools of 1 s, s": waiting,
    }


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[LightClient]]:
    """So many clients, for whom everything is warm."""
    clients = [await LightClient.connect(port) for _ in range(count)]
    for client in clients:
        await client.call("plain")
    for _ in range(30):
        await clients[0].run("nothing")
    yield clients
    for client in clients:
        await client.close()


Use = Callable[[LightClient, str], Awaitable[object]]


async def _together(clients: list[LightClient], tool: str, count: int, use: Use) -> None:
    """So many uses of a tool, by all clients at once, each one after the other."""
    left = iter(range(count))

    async def one(client: LightClient) -> None:
        for _ in left:
            await use(client, tool)

    await asyncio.gather(*map(one, clients))


async def _timed(use: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await use()
    return time.perf_counter() - began


async def _with_cpu(use: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """How long it took, and the CPU time of the server's processes meanwhile."""
    before = cpu_s()
    return await _timed(use), cpu_s() - before


@contextmanager
def served(command: list[str], place: str) -> Iterator[int]:
    """The port of a server that runs meanwhile. What it started ends with it. Raises Unavailable."""
    port = free_port()
    mark = os.environ[RUN] = secrets.token_hex(8)
    with tempfile.TemporaryFile("w+") as said, ended_afterwards(mark):
        server = subprocess.Popen([*command, str(port), place], stdout=said, stderr=said)
        wait_until(lambda: server.poll() is not None or _accepts(port))
        if server.poll() is not None:
            said.seek(0)
            raise Unavailable(said.read()[-2000:])
        yield port


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def as_table(found: dict[str, Figures]) -> Table:
    table = Table("", *found, title="Tasks over MCP, in one run")
    for name in next(iter(found.values()), {}):
        figures = (found[title][name] for title in found)
        table.add_row(name, *(f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}" for figure in figures))
    return table
