"""Tools that tell in which process they run, and that leave something running in it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import Any

from .base import app


@app.tool
def pid() -> int:
    return os.getpid()


@app.tool(isolation="fresh")
def fresh_pid() -> int:
    return os.getpid()


@app.tool
def leave_child() -> int:
    """Return, while a child goes on and on writing."""
    script = "import time\nwhile True: print('left behind', flush=True); time.sleep(0.001)"
    return subprocess.Popen([sys.executable, "-S", "-c", script]).pid


@app.tool
def leave_thread() -> int:
    """Return, while a thread goes on and on writing."""

    def write() -> None:
        while True:
            print("left behind")
            time.sleep(0.001)

    threading.Thread(target=write, daemon=True).start()
    return os.getpid()


_kept: list[Any] = []


@app.tool
async def leave_coroutine() -> int:
    async def write() -> None:
        while True:
            print("left behind")
            await asyncio.sleep(0)

    _kept.append(asyncio.create_task(write()))
    return os.getpid()


@app.tool
def close_output() -> int:
    print("before")
    sys.stdout.close()
    os.close(1)
    os.close(2)
    return os.getpid()


@app.tool
def threads(count: int) -> int:
    """Threads that all print; they are joined."""

    def write(number: int) -> None:
        print(f"thread {number}")

    running = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return count
