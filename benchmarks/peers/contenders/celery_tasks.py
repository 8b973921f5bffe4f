"""Celery on Redis, with its results kept there, and two processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from shapes import WORKERS, Contender, main, program, workers

URL = os.environ.setdefault("BENCHMARK_URL", sys.argv[1])

app = Celery("peers", broker=URL, backend=URL)


@app.task(name="moment")
def moment() -> int:
    return time.time_ns()


class Tasks(Contender):
    def submit(self) -> Any:
        return moment.delay()

    def result(self, handle: Any) -> int:
        started: int = handle.get(timeout=60)
        return started


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    run = [program("celery"), "-A", "celery_tasks", "worker", "-c", str(WORKERS), "-l", "ERROR"]
    with workers(run):
        yield Tasks()


if __name__ == "__main__":
    main(made)
