"""Tools that end well, badly, or with a result that is hard to give back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...context import TaskContext
from ...errors import ProtocolError
from .base import app


@app.tool
def add(a: int, b: int = 2) -> dict[str, int]:
    return {"sum": a + b}


@app.tool
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@app.tool
def whoami(ctx: TaskContext) -> dict[str, Any]:
    return {
        "task_id": ctx.task_id,
        "attempt": ctx.attempt,
        "owner": ctx.owner,
        "tags": list(ctx.tags),
        "meta": dict(ctx.meta),
        "answers": {key: answer.to_dict() for key, answer in ctx.answers.items()},
        "caller": None if ctx.caller is None else ctx.caller.to_dict(),
    }


@app.tool
def fail(message: str) -> None:
    raise LookupError(message)


@app.tool
async def fail_later(message: str) -> None:
    await asyncio.sleep(0)
    raise LookupError(message)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@app.tool
def fail_unspeakably() -> None:
    raise Unspeakable


@app.tool
def answer_with_protocol_error() -> None:
    raise ProtocolError(-32042, "go there first", {"url": "https://example.org/"})


@app.tool(retries=0)
def end_badly(how: str) -> None:
    """End in a way that a tool should not."""
    ways: dict[str, Callable[[], Any]] = {
        "sys.exit": lambda: sys.exit(3),
        "os._exit": lambda: os._exit(3),
        "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "interrupt": _interrupt,
    }
    ways[how]()


def _interrupt() -> None:
    raise KeyboardInterrupt


@app.tool
def give(what: str) -> Any:
    """Give back what is hard to give back."""
    nested: list[Any] = []
    if what == "deep":
        for _ in range(100_000):
            nested = [nested]
    things: dict[str, Callable[[], Any]] = {
        "object": object,
        "nan": lambda: float("nan"),
        "nul": lambda: "a\0b",
        "surrogate": lambda: "\ud800",
        "deep": lambda: nested,
        "path": lambda: Path("/tmp/x"),
        "bytes": lambda: b"\xff\xfe",
        "set": lambda: {1},
    }
    return things[what]()


@app.tool
def give_much(size: int) -> str:
    return "x" * size
