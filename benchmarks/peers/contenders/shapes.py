"""The shapes in which every contender is measured: the same code, in whatever environment it is run.

It needs nothing but Python. A contender submits tasks that do nothing but say when they began (nanoseconds).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

WORKERS = 2
SUBMITTERS = 16
LONGEST_GAP_S = 0.03

#: In the environment of a contender and of all that it starts, so that its processes can be found.
RUN = "BENCHMARK_RUN"
#: Which services work for it besides, by the numbers of their processes.
SERVICES = "BENCHMARK_SERVICES"


class Contender:
    """Something that runs tasks. `submit` gives a handle, `result` waits for what its task gave back."""

    def submit(self) -> Any:
        raise NotImplementedError

    def result(self, handle: Any) -> int:
        raise NotImplementedError

    def submit_together(self, count: int) -> Sequence[Any]:
        """The handles of so many tasks, submitted by several at once, each one after the other."""
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            return list(pool.map(lambda _: self.submit(), range(count)))


class Asynchronous(Contender):
    """A contender whose library is made for asyncio."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def begin(self) -> Any:
        raise NotImplementedError

    async def end(self, handle: Any) -> int:
        raise NotImplementedError

    def submit(self) -> Any:
        return self._loop.run_until_complete(self.begin())

    def result(self, handle: Any) -> int:
        return self._loop.run_until_complete(self.end(handle))

    def submit_together(self, count: int) -> Sequence[Any]:
        async def several() -> list[list[Any]]:
            shares = [count // SUBMITTERS + (number < count % SUBMITTERS) for number in range(SUBMITTERS)]
            return await asyncio.gather(*map(one_by_one, shares))

        async def one_by_one(share: int) -> list[Any]:
            return [await self.begin() for _ in range(share)]

        return [handle for handles in self._loop.run_until_complete(several()) for handle in handles]


def measure(contender: Contender, tasks: int) -> None:
    """Print what was found as one line of JSON."""
    for handle in [contender.submit() for _ in range(50)]:
        contender.result(handle)
    print(json.dumps({**with_gaps(contender, max(50, tasks // 8)), **rates(contender, tasks)}))


def with_gaps(contender: Contender, tasks: int) -> dict[str, float]:
    """One task after another, each after a pause: caches go cold and processes sleep, as in life."""
    submits, dispatches = [], []
    chance = random.Random(1)  # the same gaps for every contender
    for _ in range(tasks):
        time.sleep(chance.random() * LONGEST_GAP_S)
        before = time.time_ns()
        handle = contender.submit()
        submits.append(time.time_ns() - before)
        dispatches.append(contender.result(handle) - before)
    return {
        "dispatch p50 ms": _percentile(dispatches, 50) / 1e6,
        "dispatch p99 ms": _percentile(dispatches, 99) / 1e6,
        "submit p50 ms": _percentile(submits, 50) / 1e6,
    }


def rates(contender: Contender, tasks: int) -> dict[str, float]:
    """From the first submit to the last result: by one submitter, and by several."""
    cpu_before, began = cpu_s(), time.perf_counter()
    for handle in [contender.submit() for _ in range(tasks)]:
        contender.result(handle)
    alone = time.perf_counter() - began
    cpu = cpu_s() - cpu_before
    began = time.perf_counter()
    for handle in contender.submit_together(tasks):
        contender.result(handle)
    together = time.perf_counter() - began
    return {"tasks/s": tasks / alone, "CPU ms a task": cpu / tasks * 1000, "tasks/s, 16": tasks / together}


def cpu_s() -> float:
    """What all processes of this run and its services have used up to now, those that ended included."""
    services = {int(number) for number in os.environ.get(SERVICES, "").split()}
    ticks, parents = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it is gone
            continue
        pid = int(process.name)
        ticks[pid], parents[pid] = sum(map(int, fields[11:15])), int(fields[1])
    counted = marked(os.environ[RUN]) | {pid for pid in ticks if services.intersection(_line(pid, parents))}
    return sum(ticks.get(pid, 0) for pid in counted) / os.sysconf("SC_CLK_TCK")


def marked(run: str) -> set[int]:
    """The processes that a contender consists of, also those that have left it."""
    mark, found = f"{RUN}={run}".encode(), set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone, or somebody else's
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
    return found


def _line(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """A process, its parent, and so on."""
    while pid in parents:
        yield pid
        pid = parents[pid]


@contextmanager
def workers(*commands: Sequence[str]) -> Iterator[None]:
    """Programs that run meanwhile, in this environment. What they say goes to stderr."""
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) for command in commands]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def program(name: str) -> str:
    """A command of the environment that this Python belongs to."""
    return str(Path(sys.executable).with_name(name))


def _percentile(values: list[int], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def main(make: Callable[[str], Any]) -> None:
    """Run a contender: `make` is given the address of what it works on, and gives a context manager."""
    url, tasks = sys.argv[1:]
    with make(url) as contender:
        measure(contender, int(tasks))
