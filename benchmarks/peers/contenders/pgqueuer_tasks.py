"""PgQueuer, with two processes. It keeps no results, so a task sends its own to whoever submitted it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries
from shapes import WORKERS, Asynchronous, main, program, workers

URL, RESULTS = "BENCHMARK_URL", "BENCHMARK_RESULTS"
WORK = "work"
NUMBERS = struct.Struct("qq")  # which task, and when it began


async def work() -> None:
    manager = PgQueuer.from_asyncpg_connection(await asyncpg.connect(os.environ[URL]))
    results = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    results.connect(os.environ[RESULTS])

    @manager.entrypoint("moment")
    async def moment(job: Job) -> None:
        assert job.payload is not None
        results.send(NUMBERS.pack(int(job.payload), time.time_ns()))

    await manager.run()


class Tasks(Asynchronous):
    def __init__(self, loop: asyncio.AbstractEventLoop, queries: Queries, results: socket.socket) -> None:
        super().__init__(loop)
        self._queries = queries
        self._results = results
        self._began: dict[int, int] = {}
        self._last = 0

    async def begin(self) -> int:
        self._last += 1
        number = self._last
        await self._queries.enqueue("moment", b"%d" % number)
        return number

    async def end(self, handle: int) -> int:
        while handle not in self._began:
            number, began = NUMBERS.unpack(await self._loop.sock_recv(self._results, NUMBERS.size))
            self._began[number] = began
        return self._began[handle]


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    subprocess.run([program("pgq"), "--pg-dsn", url, "install"], check=True, capture_output=True)
    loop = asyncio.new_event_loop()
    queries = Queries(AsyncpgDriver(loop.run_until_complete(asyncpg.connect(url))))
    run = [sys.executable, __file__, WORK]  # as `pgq run` does, which does not start with every typer
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as results,
    ):
        results.setblocking(False)
        results.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        results.bind(f"{folder}/results")
        os.environ.update({URL: url, RESULTS: f"{folder}/results"})
        with workers(*[run] * WORKERS):
            yield Tasks(loop, queries, results)


if __name__ == "__main__":
    if sys.argv[1] == WORK:
        asyncio.run(work())
    else:
        main(made)
