"""A server whose tools keep files.

python app.py http PORT
"""

from __future__ import annotations

import sys

from backburner import Backburner, TaskContext
from backburner.errors import ArtifactStorageError

bb = Backburner("artifact-tests")


@bb.tool
def keep(size: int, *, ctx: TaskContext) -> str:
    """Keep a file of so many bytes, in a pattern that no chunk of it shares with another."""
    path = ctx.scratch / "data.bin"
    with path.open("wb") as file:
        for number in range(0, size, 64):
            file.write(f"{number:063}\n".encode()[: size - number])
    ctx.artifact(path)
    return "kept"


@bb.tool
def keep_blank(mebibytes: int, *, ctx: TaskContext) -> str:
    """Keep a large file that takes no room before it is copied."""
    path = ctx.scratch / "blank.bin"
    with path.open("wb") as file:
        file.truncate(mebibytes << 20)
    return ctx.artifact(path).sha256


@bb.tool
def keep_if_possible(ctx: TaskContext) -> str:
    """Keep a file, and say what went wrong if it cannot be kept."""
    try:
        ctx.artifact(b"data", name="data.bin")
    except ArtifactStorageError as error:
        return f"{error.code}: {error}"
    return "kept"


@bb.tool
def write(length: int) -> str:
    """A result that is too long to be kept with the task."""
    return "x" * length


if __name__ == "__main__":
    from backburner.mcp.transport.run import run_http

    run_http(bb, "127.0.0.1", int(sys.argv[2]), log_level="critical")
