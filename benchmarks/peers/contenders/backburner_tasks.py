"""Backburner with its defaults, but for as many workers as the others have."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shapes import WORKERS, Contender, main

from backburner import Backburner

STORE = "BENCHMARK_STORE"

bb = Backburner(
    "peers",
    store=os.environ.setdefault(STORE, sys.argv[1] if len(sys.argv) > 1 else "sqlite://"),
    queues={"cpu_standard": {"workers": WORKERS, "max_length": 1_000_000}},
)


@bb.tool
def moment() -> int:
    return time.time_ns()


class Tasks(Contender):
    def submit(self) -> str:
        return bb.service.submit("moment", {}).task_id

    def result(self, handle: str) -> int:
        started: int = bb.service.wait(handle, 60).task.result
        return started


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    bb.start()
    yield Tasks()
    bb.close()


if __name__ == "__main__":
    main(made)
