"""Tasks over MCP (Streamable HTTP, 2026-07-28), beside fastmcp-tasks: both with their defaults, in one run.

Light clients submit and then ask every 5 ms; CPU is that of the server, of all that it starts, and of the
service that it needs. BENCHMARK_TASKS, BENCHMARK_ONLY and BENCHMARK_ROUNDS are as for `peers`.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.services import accepts, free_port, wait_until
from tests.system.interop.environment import Unavailable, python

from ..peers import ended_afterwards, in_rounds, services, takes_part, tasks
from ..peers.contenders.shapes import LONGEST_GAP_S, RUN, SERVICES, cpu_s
from ..report import Results
from ..targets import (
    CPU,
    CPU_PLAIN_CALL,
    CPU_SUBMIT,
    FASTMCP_TASKS,
    FIFTY_S,
    OVER_MCP,
    PLAIN_CALL,
    RATE_16,
    SUBMIT,
    SUBMITS_16,
)
from .light_client import LightClient

SERVERS = Path(__file__).parent / "servers"
CLIENTS = 16
WAITING = 50

Figures = dict[str, float]


def main() -> Results:
    return in_rounds(one_round)


def one_round() -> Results:
    results = Results()
    with services("redis") as there, tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder:
        redis = there.get("redis")
        entries = {
            OVER_MCP: ("", "backburner_server.py", f"sqlite:///{folder}/tasks.db"),
            FASTMCP_TASKS: ("fastmcp", "fastmcp_server.py", "memory://"),
            "fastmcp-tasks Redis": ("fastmcp", "fastmcp_server.py", redis.place(0) if redis else ""),
        }
        for title, (environment, program, place) in entries.items():
            if not takes_part(title):
                continue
            print(f"{title} …", file=sys.stderr, flush=True)
            os.environ[SERVICES] = str(redis.server.pid) if redis and place.startswith("redis:") else ""
            try:
                if not place:
                    raise Unavailable("redis is not there")
                interpreter = str(python(environment)) if environment else sys.executable
                with served([interpreter, str(SERVERS / program)], place) as port:
                    results.figures[title] = asyncio.run(measure(port, tasks()))
            except (Unavailable, RuntimeError, OSError) as error:
                results.left_out[title] = str(error)
    return results


async def measure(port: int, count: int) -> Figures:
    async with connected(port, WAITING) as clients:
        waiting = await _timed(lambda: together(clients, "wait_a_second", WAITING, LightClient.run))
    async with connected(port, 1) as (client,):
        plain, submit = await _in_turns(client, max(50, count // 8))
    async with connected(port, CLIENTS) as clients:
        ran, run_cpu = await _with_cpu(lambda: together(clients, "nothing", count, LightClient.run))
        submitted, submit_cpu = await _with_cpu(lambda: together(clients, "nothing", count, LightClient.call))
        _, call_cpu = await _with_cpu(lambda: together(clients, "plain", count, LightClient.call))
    return {
        RATE_16: count / ran,
        SUBMIT: statistics.median(submit) * 1000,
        CPU: run_cpu / count * 1000,
        PLAIN_CALL: statistics.median(plain) * 1000,
        CPU_PLAIN_CALL: call_cpu / count * 1000,
        SUBMITS_16: count / submitted,
        CPU_SUBMIT: submit_cpu / count * 1000,
        FIFTY_S: waiting,
    }


async def _in_turns(client: LightClient, count: int) -> tuple[list[float], list[float]]:
    """The seconds of plain calls and of submits, each after a gap and when nothing else is under way."""
    plain, submit = [], []
    chance = random.Random(1)
    for _ in range(count):
        await asyncio.sleep(chance.random() * LONGEST_GAP_S)
        plain.append(await _timed(lambda: client.call("plain")))
        await asyncio.sleep(chance.random() * LONGEST_GAP_S)
        began = time.perf_counter()
        task = await client.call("nothing")
        submit.append(time.perf_counter() - began)
        await client.until_over(task["taskId"])
    return plain, submit


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


async def together(clients: list[LightClient], tool: str, count: int, use: Use) -> None:
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
        wait_until(lambda: server.poll() is not None or accepts(port))
        if server.poll() is not None:
            said.seek(0)
            raise Unavailable(said.read()[-2000:])
        yield port
