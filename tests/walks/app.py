"""The server whose walks are recorded. Its tools wait for files, so that the test opens a window first."""

import time
from pathlib import Path

from backburner import Backburner, TaskContext

bb = Backburner("walks", queues={"cpu_small": 1, "cpu_standard": 1})

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


@bb.tool(queue="cpu_small")
def wait(text: str) -> None:
    """Wait in a paused queue."""


@bb.tool
def run(ctx: TaskContext) -> None:
    """Run until cancelled."""
    ctx.wait_cancelled(100)
    ctx.raise_if_cancelled()


@bb.tool
def write(folder: str) -> None:
    """Print a line on request."""
    wait_for(Path(folder, "print"))
    print(f"line of {Path(folder).name}", flush=True)
    wait_for(Path(folder, "end"))


@bb.tool
def ask(folder: str, ctx: TaskContext) -> object:
    """Ask a question on request."""
    wait_for(Path(folder, "ask"))
    answer = ctx.ask(f"Name of {Path(folder).name}?", NAME).content
    wait_for(Path(folder, "end"))
    return answer


@bb.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    bb.run()
