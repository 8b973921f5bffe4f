"""What API and dashboard take with 100,000 tasks in the store, and what 200 who look cost who submits."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.table import Table

from backburner.core.times import iso
from backburner.store import open_store
from backburner.web.dashboard.sessions import one_time_link

from .scale import fill

TASKS = int(os.environ.get("BENCHMARK_LOOKED_AT", "100_000"))
STREAMS = int(os.environ.get("BENCHMARK_STREAMS", "200"))
ROUNDS = 40
#: A page rests for a second and an event stream for two, so a turn has several of these.
TURNS, TURN_S = 9, 5.0

APP = """
from backburner import Backburner

bb = Backburner("looking")


@bb.tool
def nothing() -> None:
    "Do nothing."
"""

API = "/api/v1"
#: What is open beside who submits.
OPENED = {"event streams": f"{API}/events", "dashboards": "/?live=1"}
#: A filling has a task each millisecond from then on. Here they are of the last week, and each took a second.
FILLED_SINCE, WEEK_MS = 1_700_000_000_000, 7 * 86_400_000
NOW = int(time.time() * 1000)
RECENT = f"{NOW - WEEK_MS} + (submitted_at - {FILLED_SINCE}) * {WEEK_MS // TASKS}"
ALL_OF_IT = {"since": iso(NOW - WEEK_MS), "until": iso(NOW), "every_s": 3600}
#: What is asked for, and within how many milliseconds it should come.
ASKED: dict[str, tuple[str, dict[str, Any], float]] = {
    "list": (f"{API}/tasks", {}, 100),
    "list, failed": (f"{API}/tasks", {"state": "failed"}, 100),
    "list, by tag": (f"{API}/tasks", {"tag": "project:x"}, 100),
    "list, by a text that none has": (f"{API}/tasks", {"text": "no such thing"}, 100),
    "list, of a queue that has none": (f"{API}/tasks", {"queue": "gpu_small"}, 100),
    "list, by how an id begins": (f"{API}/tasks", {"id": "tsk_0000050000"}, 100),
    "overview": (f"{API}/overview", {}, 200),
    "statistics of all that ended": (f"{API}/statistics", ALL_OF_IT, 200),
    "page: tasks": ("/dashboard/tasks", {}, 100),
    "page: failed tasks": ("/dashboard/tasks", {"state": "failed"}, 100),
    "page: overview": ("/", {}, 200),
    "page: overview of a week": ("/", {"last": "week"}, 200),
}


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="backburner-bench-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/tasks.db"
        open_store(url).close()
        fill(url, TASKS, 0)
        with closing(sqlite3.connect(folder / "tasks.db")) as filled, filled:
            filled.execute(f"UPDATE tasks SET started_at = {RECENT}, completed_at = {RECENT} + 1000")
            filled.execute(f"UPDATE tasks SET submitted_at = {RECENT}")
        with served(folder, url) as address:
            with closing(open_store(url)) as store:
                cookies = httpx2.get(one_time_link(store, address)).cookies
            console.print(answers(address, cookies))
            lookers(address, cookies, console)


def answers(address: str, cookies: Any) -> Table:
    table = Table("over HTTP, ms", "median", "longest", "limit", title=f"{TASKS:,} tasks, SQLite")
    with httpx2.Client(base_url=address, cookies=cookies, timeout=60) as http:
        for what, (path, query, limit) in ASKED.items():
            took = []
            for number in range(ROUNDS + 3):
                before = time.perf_counter()
                assert http.get(path, params=query).status_code == 200, what
                if number >= 3:
                    took.append((time.perf_counter() - before) * 1000)
            colour = "green" if statistics.median(took) <= limit else "red"
            table.add_row(
                what, f"[{colour}]{statistics.median(took):.1f}[/]", f"{max(took):.1f}", f"{limit:.0f}"
            )
    return table


def lookers(address: str, cookies: Any, console: Console) -> None:
    """Submissions one after the other, with so many who look and without, in turns."""
    rates: dict[str, list[float]] = {"": [], **{what: [] for what in OPENED}}
    for _ in range(TURNS):
        for what, found in rates.items():
            with looking(address, OPENED[what], dict(cookies)) if what else nullcontext():
                found.append(_submit(address))
    without = statistics.median(rates.pop(""))
    console.print(f"{without:.0f} submissions a second")
    for what, found in rates.items():
        beside = statistics.median(found)
        fewer = 100 * (without - beside) / without
        console.print(f"{beside:.0f} with {STREAMS} {what} open: {fewer:.1f} % fewer")


@contextmanager
def looking(address: str, path: str, cookies: dict[str, str]) -> Iterator[None]:
    """With so many who look, in a process of their own that gives way to others: browsers are elsewhere."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_look, args=(address, path, cookies, ready), daemon=True)
    process.start()
    try:
        assert ready.wait(120), "not all of them see something"
        yield
    finally:
        process.kill()
        process.join()


def _look(address: str, path: str, cookies: dict[str, str], ready: Any) -> None:
    async def look() -> None:
        readers = await asyncio.gather(*(_opened(address, path, cookies) for _ in range(STREAMS)))
        ready.set()
        await asyncio.gather(*map(_read, readers))

    os.nice(19)
    asyncio.run(look())


async def _opened(address: str, path: str, cookies: dict[str, str]) -> asyncio.StreamReader:
    """A stream whose first picture has come; where there is none, it has begun."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
    await reader.readuntil(b": open" if path.startswith(API) else b"event: page")
    return reader


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


def _submit(address: str) -> float:
    with httpx2.Client(base_url=f"{address}{API}", timeout=60) as http:
        submitted, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < TURN_S:
            http.post("/tasks", json={"tool": "nothing"}).raise_for_status()
            submitted += 1
        return submitted / took


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
        stop = [*command, "supervisor", "stop", "-t", "app.py"]
        subprocess.run(stop, cwd=folder, env=environment, capture_output=True, check=True)
