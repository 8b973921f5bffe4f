"""Tools that need several attempts, or a sign from outside to end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...context import TaskContext
from ...retry import Retry
from .base import app


@app.tool(retries=Retry(max_attempts=3, backoff_s=0.2, on=("ConnectionError",)))
def succeed_at(attempt: int, ctx: TaskContext) -> int:
    if ctx.attempt < attempt:
        raise ConnectionError(f"attempt {ctx.attempt} of {attempt}")
    return ctx.attempt


@app.tool(retries=Retry(max_attempts=2, backoff_s=3, on=("ConnectionError",)))
def succeed_later(ctx: TaskContext) -> int:
    """Fail once, and succeed after a while."""
    if ctx.attempt == 1:
        raise ConnectionError("try again later")
    return ctx.attempt


def _is_reset(error: BaseException) -> bool:
    return "reset" in str(error)


def _is_undecided(error: BaseException) -> bool:
    raise LookupError("nobody knows")


def _end(error: BaseException) -> bool:
    raise SystemExit(1)


#: What is tried again, by the name of a tool that fails once with a ConnectionResetError, or a KeyError.
RETRIED_ON: dict[str, Any] = {
    "by_name_of_base": "ConnectionError",
    "by_class": OSError,
    "by_function": _is_reset,
    "by_any_of_a_list": ["worker_lost", ZeroDivisionError, _is_reset],
    "by_function_that_raises": _is_undecided,
    "by_function_that_ends": _end,
}


def _break_once(error: str, ctx: TaskContext) -> int:
    if ctx.attempt == 1:
        raise ConnectionResetError("reset by peer") if error == "reset" else KeyError(error)
    return ctx.attempt


for _name, _on in RETRIED_ON.items():
    app.tool(name=_name, retries=Retry(max_attempts=2, backoff_s=0.01, on=_on))(_break_once)


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
def ledgered(kind: str, ledger: str, seconds: float, ctx: TaskContext) -> str:
    """Work of a kind, with the task's lock in the ledger held for as long as any process of it is at work."""
    with _locked(Path(ledger), ctx) as lock:
        if kind == "quick":
            return kind
        if kind == "child":
            # It has the lock as well, so that one that outlives its runner is seen.
            subprocess.run(["sleep", str(seconds)], check=False, start_new_session=True, pass_fds=[lock])
        if kind == "checkpoint":
            for step in range(ctx.checkpoint_data or 0, 5):
                ctx.checkpoint(step + 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ctx.progress(percent=50)
            time.sleep(0.005)
            ctx.raise_if_cancelled()
    return kind


@contextlib.contextmanager
def _locked(ledger: Path, ctx: TaskContext) -> Iterator[int]:
    """Write into the ledger that this attempt begins, and whether another one is still at work."""
    lock = os.open(ledger / ctx.task_id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            word = "begin"
        except BlockingIOError:
            word = "overlap"
        with (ledger / "ledger").open("a") as lines:
            lines.write(f"{word} {ctx.task_id} {ctx.attempt}\n")
        yield lock
    finally:
        os.close(lock)


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
