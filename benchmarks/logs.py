"""What a store that took a gigabyte of log lines has on its disk, before and after pruning.

Meanwhile another writer sends a heartbeat now and then, and waits as any writer does.
`BENCHMARK_LOG_MB` takes less.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from backburner.core.lifecycle import TERMINAL
from backburner.core.reports import Logged, Started, Succeeded
from backburner.core.task import LogLine
from backburner.core.times import SystemClock
from backburner.store import open_store
from backburner.store.protocol import Store, TaskQuery
from tests.contracts.store.base import new_task

MEGABYTES = int(os.environ.get("BENCHMARK_LOG_MB", "1000"))
#: What a supervisor reports at once, of a tool that writes as fast as it can.
REPORT_BYTES = 48_000
TASK_MEGABYTES = 25
LARGEST, LARGEST_PRUNED = 1 / 3, 1 / 10

WORDS = (
    "mesh",
    "solver",
    "parser",
    "cache",
    "lattice",
    "kernel",
    "tensor",
    "spline",
    "index",
    "graph",
    "buffer",
)
COMPILE = "c++ -O3 -march=native -DNDEBUG -Iinclude -I/usr/include/eigen3 -std=c++20 -fPIC"
CLOCK = SystemClock()
T = TypeVar("T")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder:
        path = Path(folder, "tasks.db")
        with closing(open_store(f"sqlite:///{path}")) as store:
            table = Table("SQLite", "on disk, MB", "of the lines", "aim", "s", "longest wait of another, ms")
            for column in table.columns[1:]:
                column.justify = "right"
            with waiting(store) as waits:
                written, seconds = timed(lambda: fill(store))
            add_row(table, f"{written / 1e6:,.0f} MB logged", path, written, LARGEST, seconds, waits)
            with waiting(store) as waits:
                _, seconds = timed(lambda: prune(store))
            add_row(table, "all of it pruned", path, written, LARGEST_PRUNED, seconds, waits)
        Console().print(table)


def add_row(
    table: Table, what: str, path: Path, written: int, aim: float, seconds: float, waits: list[float]
) -> None:
    bytes_on_disk = sum(file.stat().st_size for file in path.parent.glob(path.name + "*") if file.is_file())
    share = bytes_on_disk / written
    colour = "green" if share <= aim else "red"
    numbers = (f"{bytes_on_disk / 1e6:,.1f}", f"[{colour}]{share:.1%}[/]", f"{aim:.0%}", f"{seconds:.0f}")
    table.add_row(what, *numbers, f"{max(waits, default=0):.0f}")


# -- logging and pruning ---------------------------------------------------------------------------


def fill(store: Store) -> int:
    """The bytes of the lines, as they were in the tools' output."""
    lines, written = log_lines(), 0
    while written < MEGABYTES * 1e6:
        task_id = store.submit(new_task(CLOCK)).task.task_id
        lease = store.claim_task(task_id, "worker")
        assert lease is not None
        store.report(lease, Started())
        seq = own = 0
        while own < min(TASK_MEGABYTES, MEGABYTES) * 1e6:
            report, size = [], 0
            while size < REPORT_BYTES:
                seq, line = seq + 1, next(lines)
                report.append(LogLine(seq, CLOCK.now_ms(), "stdout", "info", line))
                size += len(line) + 1
            store.report(lease, Logged(tuple(report)))
            own += size
        store.report(lease, Succeeded("1"))
        written += own
    return written


def prune(store: Store) -> None:
    """As `backburner prune --older-than 0` does it."""
    while finished := store.page(TaskQuery(limit=500, states=TERMINAL)):
        for task in finished:
            store.delete(task.task_id)
    while store.give_back(keep_bytes=0):
        time.sleep(0.005)


@contextmanager
def waiting(store: Store) -> Iterator[list[float]]:
    """Have another write to the store meanwhile; how long each of its writes took, in milliseconds."""
    waits: list[float] = []
    over = threading.Event()

    def write() -> None:
        with closing(open_store(store.url)) as other:
            while not over.wait(0.02):
                _, seconds = timed(lambda: other.heartbeat([], []))
                waits.append(seconds * 1000)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join()


def timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.monotonic()
    value = work()
    return value, time.monotonic() - began


# -- lines as tools write them ---------------------------------------------------------------------


def log_lines() -> Iterator[str]:
    """A simulation, a build and a service in turns; always the same."""
    chance = random.Random(1)
    steps = itertools.count(1)
    while True:
        kind = chance.choice((simulation, build, build, service))
        yield from kind(chance, steps)


def simulation(chance: random.Random, steps: Iterator[int]) -> Iterator[str]:
    for step in itertools.islice(steps, chance.randrange(5, 40)):
        energy, change, force = chance.gauss(-1523, 2), chance.gauss(0, 1e-4), chance.expovariate(20)
        yield f"step {step:8d}  E = {energy:16.9f} eV  dE = {change:12.4e}  max|F| = {force:9.6f}"


def build(chance: random.Random, _: object) -> Iterator[str]:
    total = chance.randrange(200, 2000)
    for number in range(chance.randrange(5, 60)):
        file = source_file(chance)
        yield f"[{number + 1}/{total}] {COMPILE} -MD -MT build/{file}.o -o build/{file}.o -c src/{file}"
        if chance.random() < 0.15:
            place = f"src/{file}:{chance.randrange(1, 2000)}:{chance.randrange(1, 90)}"
            yield f"{place}: warning: unused variable '{chance.choice(WORDS)}' [-Wunused-variable]"


def service(chance: random.Random, _: object) -> Iterator[str]:
    for _ in range(chance.randrange(5, 30)):
        request, took = f"{chance.getrandbits(64):016x}", chance.expovariate(0.05)
        status = chance.choice((200, 200, 200, 404, 500))
        yield f"INFO {chance.choice(WORDS)}.serve request={request} status={status} took={took:.3f}ms"


def source_file(chance: random.Random) -> str:
    folders = "/".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 4)))
    return f"{folders}/{chance.choice(WORDS)}_{chance.choice(WORDS)}.cpp"
