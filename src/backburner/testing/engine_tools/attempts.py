"""Tools that need several attempts, or a sign from outside to end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ...context import TaskContext
from ...task import Retry
from .base import app


@app.tool(retries=Retry(max_attempts=3, backoff_s=0.2, on=("ConnectionError",)))
def succeed_at(attempt: int, ctx: TaskContext) -> int:
    if ctx.attempt < attempt:
        raise ConnectionError(f"attempt {ctx.attempt} of {attempt}")
    return ctx.attempt


@app.tool(retries=Retry(max_attempts=5, backoff_s=0.01, on=("*",)))
def count_on(ctx: TaskContext) -> list[int]:
    """Each attempt adds one to what the last one kept, and fails until there are three."""
    counted = [*(ctx.checkpoint_data or []), ctx.attempt]
    ctx.checkpoint(counted)
    if len(counted) < 3:
        raise RuntimeError("not yet")
    return counted


@app.tool
def run_until(folder: str, ctx: TaskContext) -> int:
    """Run until there is a file `go` in the folder; a file there says that this attempt has begun."""
    Path(folder, f"{ctx.task_id}-{ctx.attempt}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.005)
    return ctx.attempt


@app.tool(retries=Retry(max_attempts=1000, backoff_s=0.01, max_backoff_s=0.05, on=("*",)))
def marked(kind: str, marks: str, seconds: float, ctx: TaskContext) -> str:
    """Work of a kind, and leave a mark for each moment in which this attempt was at work."""
    mark = _mark(marks, ctx)
    mark()
    if kind == "quick":
        return kind
    if kind == "child":
        # The shell says itself that it is at work, so that one that outlives its runner is seen.
        script = 'while :; do echo "$1 $2 $(date +%s%N)" >>"$3"; sleep 0.01; done'
        command = ["timeout", str(seconds), "sh", "-c", script, "sh", ctx.task_id, str(ctx.attempt), marks]
        subprocess.run(command, check=False, start_new_session=True)
    if kind == "checkpoint":
        for step in range(ctx.checkpoint_data or 0, 5):
            mark()
            ctx.checkpoint(step + 1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ctx.progress(percent=50)
        time.sleep(0.005)
        mark()
        ctx.raise_if_cancelled()
    return kind


def _mark(file: str, ctx: TaskContext) -> Callable[[], None]:
    def mark() -> None:
        with Path(file).open("a") as marks:
            marks.write(f"{ctx.task_id} {ctx.attempt} {time.time_ns()}\n")

    return mark


@app.tool
def talk_until(folder: str) -> int:
    """Say a word now and then until there is a file `go` in the folder; how many there were."""
    words = 0
    while not Path(folder, "go").exists():
        print(f"word {words}")
        words += 1
        time.sleep(0.02)
    return words


@app.tool
def parent() -> int:
    """The parent of the runner's parent: on the local engine, the supervisor."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
