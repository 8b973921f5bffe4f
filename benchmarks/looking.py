"""What the API takes with 100,000 tasks in the store, and what 200 open event streams cost who submits."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.table import Table

from backburner.stores import open_store

from .scale import fill

TASKS = int(os.environ.get("BENCHMARK_LOOKED_AT", "100_000"))
STREAMS = int(os.environ.get("BENCHMARK_STREAMS", "200"))
ROUNDS, SUBMISSIONS, TURNS = 40, 200, 15

APP = """
from backburner import Backburner

bb = Backburner("looking")


@bb.tool
def nothing() -> None:
    "Do nothing."
"""

#: A filling has a task each millisecond from then on.
SINCE = 1_700_000_000_000
ALL_OF_IT = {"since": "2023-11-14T22:13:20Z", "until": "2023-11-14T22:16:00Z", "every_s": 2}
ASKED: dict[str, tuple[str, dict[str, Any], float]] = {
    "list": ("/tasks", {}, 100),
    "list, failed": ("/tasks", {"state": "failed"}, 100),
    "list, by tag": ("/tasks", {"tag": "project:x"}, 100),
    "list, by a text that none has": ("/tasks", {"text": "no such thing"}, 100),
    "list, of a queue that has none": ("/tasks", {"queue": "gpu_small"}, 100),
    "list, by how an id begins": ("/tasks", {"id": "tsk_0000050000"}, 100),
    "overview": ("/overview", {}, 200),
    "statistics of all that ended": ("/statistics", ALL_OF_IT, 200),
}


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="backburner-bench-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/tasks.db"
        open_store(url).close()
        fill(url, TASKS, 0)
        with served(folder, url) as address:
            console.print(answers(address))
            asyncio.run(streams(address, console))


def answers(address: str) -> Table:
    table = Table("over HTTP, ms", "median", "longest", "limit", title=f"{TASKS:,} tasks, SQLite")
    with httpx2.Client(base_url=f"{address}/api/v1", timeout=60) as http:
        for what, (path, query, limit) in ASKED.items():
            took = []
            for number in range(ROUNDS + 3):
                before = time.perf_counter()
                http.get(path, params=query).raise_for_status()
                if number >= 3:
                    took.append((time.perf_counter() - before) * 1000)
            colour = "green" if statistics.median(took) <= limit else "red"
            table.add_row(
                what, f"[{colour}]{statistics.median(took):.1f}[/]", f"{max(took):.1f}", f"{limit:.0f}"
            )
    return table


async def streams(address: str, console: Console) -> None:
    """Submissions one after the other, with streams open and without, in turns."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * TURNS):
        with_streams = bool(turn % 2)
        async with AsyncExitStack() as stack:
            if with_streams:
                await asyncio.gather(*(_listen(address, stack) for _ in range(STREAMS)))
            rates[with_streams].append(await asyncio.to_thread(_submit, address))
    without, beside = statistics.median(rates[False]), statistics.median(rates[True])
    words = f"{without:.0f} submissions a second; {beside:.0f} with {STREAMS} event streams open"
    console.print(f"{words}: {100 * (without - beside) / without:.1f} % fewer")


async def _listen(address: str, stack: AsyncExitStack) -> None:
    """A reader in a process of nobody else's: what it costs itself is not the server's."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    stack.callback(writer.close)
    writer.write(f"GET /api/v1/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    await reader.readuntil(b": open")


def _submit(address: str) -> float:
    with httpx2.Client(base_url=f"{address}/api/v1", timeout=60) as http:
        began = time.perf_counter()
        for _ in range(SUBMISSIONS):
            http.post("/tasks", json={"tool": "nothing"}).raise_for_status()
        return SUBMISSIONS / (time.perf_counter() - began)


@contextmanager
def served(folder: Path, url: str) -> Iterator[str]:
    import socket

    (folder / "app.py").write_text(APP)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("backburner"))]
    environment = {**os.environ, "BACKBURNER_STORE": url}
    words = ["serve", "app.py", "--http", f"127.0.0.1:{port}", "--log-level", "critical"]
    server = subprocess.Popen([*command, *words], cwd=folder, env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                if httpx2.get(f"{address}/healthz").status_code in (200, 503):
                    break
            except httpx2.TransportError:
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait(20)
        stop = [*command, "stop", "-t", "app.py"]
        subprocess.run(stop, cwd=folder, env=environment, capture_output=True, check=True)
