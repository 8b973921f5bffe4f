"""Dramatiq on Redis, with its results kept there, and two processes of one thread."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from shapes import WORKERS, Contender, main, program, workers

URL = os.environ.setdefault("BENCHMARK_URL", sys.argv[1])
# Idle workers look less and less often, with its default only once a second.
os.environ.setdefault("dramatiq_worker_timeout", "10")

broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def moment() -> int:
    return time.time_ns()


class Tasks(Contender):
    def submit(self) -> Any:
        return moment.send()

    def result(self, handle: Any) -> int:
        started: int = handle.get_result(block=True, timeout=60_000)
        return started


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    run = [program("dramatiq"), "dramatiq_tasks", "--processes", str(WORKERS), "--threads", "1"]
    with workers(run):
        yield Tasks()


if __name__ == "__main__":
    main(made)
