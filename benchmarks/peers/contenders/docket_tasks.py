"""docket, which fastmcp-tasks stands on, on Redis, with two processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from docket import Docket, Execution
from shapes import WORKERS, Asynchronous, main, program, workers


async def moment() -> int:
    return time.time_ns()


tasks = [moment]


class Tasks(Asynchronous):
    def __init__(self, loop: asyncio.AbstractEventLoop, docket: Docket) -> None:
        super().__init__(loop)
        self._docket = docket

    async def begin(self) -> Execution:
        return await self._docket.add(moment)()

    async def end(self, handle: Execution) -> int:
        started: int = await handle.get_result()
        return started


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    loop = asyncio.new_event_loop()
    docket = loop.run_until_complete(Docket(name="peers", url=url).__aenter__())
    docket.register(moment)
    run = [program("docket"), "worker", "--docket", "peers", "--url", url, "--tasks", "docket_tasks:tasks"]
    # With its default, the next task waits for a tenth of a second after the one before.
    run += ["--minimum-check-interval", "0", "--logging-level", "ERROR"]
    try:
        with workers(*[run] * WORKERS):
            yield Tasks(loop, docket)
    finally:
        loop.run_until_complete(docket.__aexit__(None, None, None))


if __name__ == "__main__":
    main(made)
