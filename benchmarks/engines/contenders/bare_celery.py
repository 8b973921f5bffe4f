"""Celery as it is, with two processes, acknowledging late as our engine has it do.

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

from celery import Celery
from shapes import WORKERS, Contender, main, program, workers
from told import Told

KEEPS, BROKER, RESULTS, PIPE = os.environ.setdefault("BENCHMARK_URL", sys.argv[1]).split()

app = Celery("bare", broker=BROKER, backend=None if KEEPS == "nothing" else RESULTS)
app.conf.update(task_acks_late=True, task_default_queue=f"bare_celery_{KEEPS}")
if KEEPS == "durable" and BROKER.startswith("amqp"):
    app.conf.broker_transport_options = {"confirm_publish": True}
told = Told(PIPE)
numbers = itertools.count()


@app.task(name="moment", ignore_result=KEEPS == "nothing")
def moment(number: int) -> int:
    began = time.time_ns()
    if KEEPS == "nothing":
        told.tell(number, began)
    return began


class Tasks(Contender):
    def submit(self) -> Any:
        number = next(numbers)
        message = moment.delay(number)
        return number if KEEPS == "nothing" else message

    def result(self, handle: Any) -> int:
        began: int = told.hear(handle) if KEEPS == "nothing" else handle.get(timeout=60)
        return began


@contextmanager
def made(url: str) -> Iterator[Tasks]:
    run = [program("celery"), "-A", "bare_celery", "worker", "-c", str(WORKERS), "-l", "ERROR"]
    with workers(run):
        yield Tasks()


if __name__ == "__main__":
    main(made)
