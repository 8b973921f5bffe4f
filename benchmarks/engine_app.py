"""The app whose tasks the engine benchmark runs."""

from __future__ import annotations

import os
import time

from backburner import Backburner, TaskContext

bb = Backburner(
    "engine-benchmark",
    store=os.environ.get("BENCHMARK_STORE", "sqlite:///engine-benchmark.db"),
    queues={"cpu_standard": {"workers": 2, "max_length": 1_000_000}},
    supervisor={"max_tasks_per_runner": 1_000_000},
)


@bb.tool
def noop() -> int:
    return 1


@bb.tool
def moment() -> int:
    return time.time_ns()


@bb.tool
def until_cancelled(ctx: TaskContext) -> None:
    ctx.log(str(time.time_ns()))
    while not ctx.wait_cancelled(60):
        pass
