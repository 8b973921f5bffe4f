"""Python's own process pool: nothing is kept, and nothing outlives it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager

from shapes import WORKERS, Contender, main


class ProcessPool(Contender):
    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def submit(self) -> Future[int]:
        return self._executor.submit(time.time_ns)

    def result(self, handle: Future[int]) -> int:
        return handle.result()


@contextmanager
def made(url: str) -> Iterator[ProcessPool]:
    with ProcessPoolExecutor(WORKERS) as executor:
        yield ProcessPool(executor)


if __name__ == "__main__":
    main(made)
