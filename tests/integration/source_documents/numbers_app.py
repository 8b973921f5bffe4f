"""Tools whose numbers the tests look at: their estimates, how far they are, and how long they ran."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

bb = Backburner("numbers")


def raises(inputs: Mapping[str, Any]) -> float:
    raise ValueError("no idea")


@bb.tool(answer="handle")
def unknown() -> str:
    """Of this tool nothing is known."""
    return "done"


@bb.tool(answer="handle")
def sleepy(seconds: float) -> str:
    """Sleep for so long."""
    time.sleep(seconds)
    return "slept"


@bb.tool(answer="handle", estimate=45.0)
def estimated() -> str:
    """Its author knows how long it takes."""
    return "done"


@bb.tool(answer="handle", estimate=raises)
def estimate_raises() -> str:
    """Its author's estimate fails."""
    return "done"


@bb.tool(answer="handle", estimate=lambda inputs: -1)
def estimate_negative() -> str:
    """Its author's estimate is less than nothing."""
    return "done"


@bb.tool(answer="handle", estimate=lambda inputs: math.nan)
def estimate_nan() -> str:
    """Its author's estimate is no number."""
    return "done"


@bb.tool(answer="handle", estimate=lambda inputs: "soon")
def estimate_text() -> str:
    """Its author's estimate is a word."""
    return "done"


def told(steps: list[dict[str, Any]], folder: str, ctx: TaskContext) -> str:
    """Say each of the steps, and after each go on when the test says so."""
    for number, step in enumerate(steps):
        ctx.progress(**step)
        while not (Path(folder) / str(number)).exists():
            if ctx.wait_cancelled(0.01):
                ctx.raise_if_cancelled()
    return "told"


@bb.tool
def tell(steps: list[dict[str, Any]], folder: str, *, ctx: TaskContext) -> str:
    """Is held for as long as its client waits."""
    return told(steps, folder, ctx)


@bb.tool(answer="handle")
def tell_job(steps: list[dict[str, Any]], folder: str, *, ctx: TaskContext) -> str:
    """Is a job from the beginning."""
    return told(steps, folder, ctx)


@bb.tool(answer="hold")
def held(seconds: float = 0.0, fail: bool = False) -> str:
    """Is held to its end."""
    time.sleep(seconds)
    if fail:
        raise RuntimeError("it broke")
    return "held"


if __name__ == "__main__":
    serve_as_told(bb)
