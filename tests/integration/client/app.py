"""A server for the tests of the client; its tools go on when the test lets them.

    python app.py stdio
    python app.py http PORT

The store is what BACKBURNER_STORE says.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pydantic import BaseModel

from backburner import Backburner, TaskContext

bb = Backburner("client-tests")


class Name(BaseModel):
    name: str


def _step(n: int, ctx: TaskContext) -> str:
    for i in range(1, n + 1):
        ctx.progress(i, n, phase="counting", message=f"step {i}")
        ctx.log(f"step {i}")
    return f"counted to {n}"


@bb.tool
def count(n: int = 3, *, ctx: TaskContext) -> str:
    """Count to n."""
    return _step(n, ctx)


@bb.tool
def count_words(path: str) -> dict[str, int]:
    """Count the words of a text: what the documentation calls."""
    return {"words": len(Path(path).read_text().split())}


@bb.tool(answer="handle")
def count_in_background(n: int = 3, *, ctx: TaskContext) -> str:
    """Count to n; a client without tasks gets a handle."""
    return _step(n, ctx)


@bb.tool(requires_task_id=True)
def count_by_task_id(n: int = 3, *, ctx: TaskContext) -> str:
    """Count to n, for a host of the TaskId contract."""
    return _step(n, ctx)


@bb.tool(retries=0)
def fail() -> str:
    """Fail."""
    raise RuntimeError("it broke")


@bb.tool(retries=0, answer="handle")
def fail_in_background() -> str:
    """Fail; a client without tasks gets a handle."""
    raise RuntimeError("it broke")


@bb.tool(retries=0, requires_task_id=True)
def fail_by_task_id() -> str:
    """Fail, for a host of the TaskId contract."""
    raise RuntimeError("it broke")


def _wait_for_gates(folder: str, n: int, ctx: TaskContext) -> str:
    for i in range(1, n + 1):
        while not Path(folder, f"open-{i}").exists():
            if ctx.wait_cancelled(0.01):
                ctx.raise_if_cancelled()
        ctx.log(f"step {i}")
        ctx.progress(i, n + 1, phase="gates", message=f"gate {i}")
        Path(folder, f"passed-{i}").touch()
    while not Path(folder, "end").exists():
        if ctx.wait_cancelled(0.01):
            ctx.raise_if_cancelled()
    return f"passed {n} gates"


@bb.tool
def gates(folder: str, n: int = 3, *, ctx: TaskContext) -> str:
    """Pass gates as they are opened by files in a folder."""
    return _wait_for_gates(folder, n, ctx)


@bb.tool(answer="handle")
def gates_in_background(folder: str, n: int = 1, *, ctx: TaskContext) -> str:
    """The same; a client without tasks gets a handle."""
    return _wait_for_gates(folder, n, ctx)


@bb.tool(requires_task_id=True)
def gates_by_task_id(folder: str, n: int = 1, *, ctx: TaskContext) -> str:
    """The same for a host of the TaskId contract."""
    return _wait_for_gates(folder, n, ctx)


@bb.tool
def ask(ctx: TaskContext) -> str:
    """Ask for a name."""
    answer = ctx.ask("Your name?", Name.model_json_schema())
    return f"Hello, {answer.content['name']}!" if answer.accepted else f"no: {answer.action}"


@bb.tool
def make_files(ctx: TaskContext) -> str:
    """Make a binary file larger than one range, and a text."""
    ctx.artifact(bytes(range(256)) * 6000, name="data.bin", kind="data")
    ctx.artifact("größer\n".encode() * 200_000, name="notes.txt", kind="text")
    return "made"


@bb.tool
def sleep(seconds: float = 60) -> str:
    """Sleep without looking up."""
    time.sleep(seconds)
    return "slept"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        bb.run()
    else:
        from backburner.mcp.transport.run import run_http

        run_http(bb, "127.0.0.1", int(sys.argv[2]), log_level="critical")
