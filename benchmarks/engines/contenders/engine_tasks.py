"""Backburner on one of its engines. Its address is three words: the engine, its broker, and the store."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shapes import WORKERS, Contender, main, program, workers

from backburner import Backburner

ADDRESS = "BENCHMARK_URL"
ENGINE, BROKER, STORE = os.environ.setdefault(ADDRESS, " ".join(sys.argv[1:2])).split()

broker: dict[str, Any] = {} if ENGINE == "local" else {ENGINE: {"url": BROKER, "namespace": "engines"}}
bb = Backburner(
    "engines",
    store=STORE,
    engine=ENGINE,
    queues={"cpu_standard": {"workers": WORKERS, "max_length": 1_000_000}},
    **broker,
)


@bb.tool
def moment() -> int:
    return time.time_ns()


class Tasks(Contender):
    def submit(self) -> str:
        return bb.service.submit("moment", {}).task_id

    def result(self, handle: str) -> int:
        began: int = bb.service.wait(handle, 60).task.result
        return began


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    bb.start()
    worker = [program("backburner"), "worker", __file__, "--engine", ENGINE, "--queue", "cpu_standard"]
    with workers(*([] if ENGINE == "local" else [worker])):
        yield Tasks()
    bb.close()


if __name__ == "__main__":
    main(made)
