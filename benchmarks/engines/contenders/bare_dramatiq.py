"""Dramatiq as it is, with two processes of one thread. It acknowledges when a task is over, always.

Its address is four words: what it keeps (`nothing`, `results`, `durable`), the broker, the place of
results, and a pipe.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from shapes import WORKERS, Contender, main, program, workers
from told import Told

KEEPS, BROKER, RESULTS, PIPE = os.environ.setdefault("BENCHMARK_URL", sys.argv[1]).split()
# On Redis, idle workers look less and less often, with its default only once a second.
if BROKER.startswith("redis"):
    os.environ.setdefault("dramatiq_worker_timeout", "10")

broker: Any = (
    RedisBroker(url=BROKER)
    if BROKER.startswith("redis")
    else RabbitmqBroker(url=BROKER, confirm_delivery=KEEPS == "durable")
)
options: dict[str, Any] = {}
if KEEPS != "nothing":
    broker.add_middleware(Results(backend=RedisBackend(url=RESULTS)))
    options["store_results"] = True
dramatiq.set_broker(broker)
told = Told(PIPE)
numbers = itertools.count()


@dramatiq.actor(queue_name=f"bare_dramatiq_{KEEPS}", **options)
def moment(number: int) -> int:
    began = time.time_ns()
    if KEEPS == "nothing":
        told.tell(number, began)
    return began


class Tasks(Contender):
    def submit(self) -> Any:
        number = next(numbers)
        message = moment.send(number)
        return number if KEEPS == "nothing" else message

    def result(self, handle: Any) -> int:
        if KEEPS == "nothing":
            return told.hear(handle)
        began: int = handle.get_result(block=True, timeout=60_000)
        return began


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    run = [program("dramatiq"), "bare_dramatiq", "--processes", str(WORKERS), "--threads", "1"]
    with workers(run):
        yield Tasks()


if __name__ == "__main__":
    main(made)
