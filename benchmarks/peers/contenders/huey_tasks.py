"""Huey, on SQLite with fsync or on Redis, with two processes that look for work as often as makes sense."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huey import RedisHuey, SqliteHuey
from shapes import WORKERS, Contender, main, program, workers

URL = os.environ.setdefault("BENCHMARK_URL", sys.argv[1])

huey = RedisHuey("peers", url=URL) if URL.startswith("redis:") else SqliteHuey(filename=URL, fsync=True)


@huey.task()
def moment() -> int:
    return time.time_ns()


class Tasks(Contender):
    def submit(self) -> Any:
        return moment()

    def result(self, handle: Any) -> int:
        started: int = handle.get(blocking=True, timeout=60, max_delay=0.002)
        return started


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    consumer = [program("huey_consumer"), "huey_tasks.huey", "-w", str(WORKERS), "-k", "process"]
    # The defaults look ten times a second and then seldom: a task would wait for that alone.
    with workers([*consumer, "-q", "-n", "-d", "0.001", "-m", "0.01"]):
        yield Tasks()


if __name__ == "__main__":
    import huey_tasks  # by the name that its workers know

    main(huey_tasks.made)
