"""Tools that keep files."""

from __future__ import annotations

from ...context import TaskContext
from .base import app


@app.tool
def keep_files(ctx: TaskContext) -> dict[str, str]:
    """One of bytes, one by its path, one from the scratch folder."""
    plain = ctx.scratch.parent / "plain.txt"
    plain.write_text("plain")
    (ctx.scratch / "deep").mkdir()
    (ctx.scratch / "deep" / "trajectory.xyz").write_bytes(b"\0" * 3_000_000)
    kept = [
        ctx.artifact(b"abc", name="abc.bin", kind="blob"),
        ctx.artifact(plain),
        ctx.artifact("deep/trajectory.xyz", kind="trajectory"),
    ]
    return {artifact.name: artifact.sha256 for artifact in kept}


@app.tool
def keep_odd_names(names: list[str], ctx: TaskContext) -> list[str]:
    return [ctx.artifact(b"data", name=name).path for name in names]


@app.tool
def keep_missing(ctx: TaskContext) -> None:
    ctx.artifact("no/such/file")


@app.tool
def keep_then_fail(ctx: TaskContext) -> None:
    ctx.artifact(b"so far", name="partial.txt")
    raise RuntimeError("after all")
