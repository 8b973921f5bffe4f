"""Tools that print, log and tell how far they are."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import time

from ...context import TaskContext
from .base import app

log = logging.getLogger("lab")


@app.tool
def talk(ctx: TaskContext) -> None:
    print("printed")
    os.write(1, b"written\n")
    log.warning("logged %d", 1)
    subprocess.run(["echo", "from a child"], check=True)
    ctx.log("noted", level="error")
    ctypes.CDLL(None).puts(b"from C")
    print("no newline", end="")
    log.info("in between")
    print(" yet")
    print("to stderr", file=sys.stderr)
    print("the end", end="")


@app.tool
def say(words: str) -> None:
    print(words)


@app.tool
def flood(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}")


@app.tool
def write_garbage() -> None:
    os.write(1, bytes(range(256)) + b"\n")
    os.write(1, b"\0log {not a record}\n")
    os.write(1, b'\0log {"ts": 1e999, "level": "", "message": ""}\n')
    os.write(1, b'\0log {"ts": %d, "level": "", "message": ""}\n' % 10**400)
    os.write(1, b"\0log " + b"[" * 100_000 + b"\n")
    os.write(2, b"x" * 100_000 + b"\n")
    log.error("a\0b\ud800")
    print("after")


@app.tool
def fork_and_log() -> None:
    """A child that was forked, and not started anew, logs as well."""
    log.info("parent")
    if (child := os.fork()) == 0:
        log.info("child")
        os._exit(0)
    os.waitpid(child, 0)
    log.info("parent again")


@app.tool
def progress(steps: int, ctx: TaskContext) -> float:
    """Seconds of CPU that so many calls took."""
    began = time.process_time()
    for step in range(steps):
        ctx.progress(step + 1, steps, phase="work", message=f"step {step + 1}", best=step)
    return time.process_time() - began


@app.tool
def go_back(ctx: TaskContext) -> None:
    ctx.progress(8, 10)
    ctx.progress(2, 10, message="a new round")


@app.tool
def odd_progress(ctx: TaskContext) -> str:
    """Nothing that a tool says about itself may stop it, or its supervisor."""
    ctx.progress(float("nan"), 3, message="a\0b\ud800", phase=3, odd=object())  # type: ignore[arg-type]
    time.sleep(0.15)
    ctx.progress(10**400, 3, big=10**400)
    time.sleep(0.15)
    ctx.progress(percent=float("inf"))
    return "done"
