"""Tools that end when told to, and that give long results: `python many_server.py stdio`, or `http PORT`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

bb = Backburner("many", queues={"cpu_standard": {"workers": 3}})


@bb.tool
def gate(folder: str, name: str, ctx: TaskContext) -> str:
    """End when a file of that name is there; a file NAME.half makes it say that it is half done."""
    while not (Path(folder) / name).exists():
        if (Path(folder) / f"{name}.half").exists():
            ctx.progress(percent=60, phase="second half")
        if ctx.wait_cancelled(0.02):
            ctx.raise_if_cancelled()
    return f"{name} opened"


@bb.tool
def table(rows: int) -> dict[str, Any]:
    """Give a table of so many rows."""
    return {"total": rows, "rows": [{"id": i, "name": f"row {i}"} for i in range(rows)]}


@bb.tool
def story(lines: int) -> str:
    """Give a text of so many lines."""
    return "\n".join(f"line {i}: é" for i in range(lines))


@bb.tool(retries=0)
def fail() -> str:
    """Fail."""
    raise RuntimeError("it broke")


@bb.tool(answer="handle")
def later() -> str:
    """Answer with a handle."""
    return "well done"


if __name__ == "__main__":
    serve_as_told(bb)
