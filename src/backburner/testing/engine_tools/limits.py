"""Tools that take time, are cancelled, or want more than they may have."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

from ...context import TaskContext
from .base import app


@app.tool
def sleep(seconds: float, ctx: TaskContext) -> float:
    """A tool that looks whether it is cancelled."""
    print("asleep")
    if ctx.wait_cancelled(seconds):
        print("tidied up")
        ctx.raise_if_cancelled()
    return seconds


@app.tool
async def sleep_async(seconds: float) -> float:
    print("asleep", flush=True)
    try:
        await asyncio.sleep(seconds)
    finally:
        print("tidied up")
    return seconds


@app.tool
def stay(seconds: float) -> float:
    """A tool that ignores every hint, as do its children: one of its group, one that left it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-S", "-c", script])
    subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=True, env={})
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(1, f"{os.getpid()}\n".encode())
            time.sleep(600)
        os._exit(0)
    time.sleep(seconds)
    return seconds


@app.tool
def ignore_cancel(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@app.tool
def hold_the_gil(seconds: float) -> str:
    """A C call that never lets another thread of its process run."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return "done"


@app.tool
def allocate(mb: int) -> int:
    return len(bytearray(mb * 1024 * 1024))


@app.tool
def allocate_in_children(mb: int) -> None:
    """Two children have half of it each."""
    script = f"import time; kept = b'x' * ({mb} << 19); time.sleep(600)"
    for _ in range(2):
        subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=True)
    os.wait()


@app.tool
def fill_scratch(mb: int, ctx: TaskContext) -> None:
    print(ctx.scratch)
    for number in range(mb):
        (ctx.scratch / f"{number}").write_bytes(os.urandom(1024 * 1024))
    time.sleep(600)


@app.tool
def fill(mb: int, where: str, ctx: TaskContext) -> None:
    """Use memory or disk space that no folder of the task shows."""
    data = bytes(1 << 20)
    if where == "artifacts":
        for number in range(mb):
            ctx.artifact(data, name=f"{number}")
    elif where == "beside scratch":
        (ctx.scratch.parent / "beside").write_bytes(data * mb)
    else:
        with _hidden_file(where, ctx) as file:
            for _ in range(mb):
                file.write(data)
            file.flush()
            time.sleep(600)
    time.sleep(600)


def _hidden_file(where: str, ctx: TaskContext) -> BinaryIO:
    if where == "memfd":
        return os.fdopen(os.memfd_create("hidden"), "wb")
    path = Path("/dev/shm" if where == "shared memory" else ctx.scratch) / f"{ctx.task_id}-hidden"
    file = path.open("wb")
    path.unlink()
    return file


@app.tool
def cpus() -> list[int]:
    """The CPUs that a child of the tool may use."""
    script = "import os; print(*sorted(os.sched_getaffinity(0)))"
    child = subprocess.run([sys.executable, "-S", "-c", script], check=True, capture_output=True, text=True)
    return [int(cpu) for cpu in child.stdout.split()]


@app.tool
def time_left(ctx: TaskContext) -> float | None:
    return None if ctx.deadline is None else ctx.deadline.timestamp() - time.time()
