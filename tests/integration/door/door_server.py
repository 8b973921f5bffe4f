"""Tools that nobody on this host works on: they are run through the server's door."""

from __future__ import annotations

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

bb = Backburner(
    "door",
    queues={"cpu_standard": {}, "elsewhere": {"workers": 0}},
    default_queue="cpu_standard",
    http={"worker_door": True},
)


@bb.tool(queue="elsewhere")
def survey(ctx: TaskContext) -> dict[str, str]:
    """Say, keep and ask all that a tool can."""
    print("looking around")
    ctx.progress(1, 2, message="half")
    ctx.checkpoint({"seen": 1})
    ctx.artifact(b"\7" * 3_000_000, "map.bin")
    answer = ctx.ask("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return {"for": str((answer.content or {}).get("name"))}


@bb.tool(queue="elsewhere")
def dig(ctx: TaskContext) -> None:
    """Go on until somebody says that it is enough."""
    ctx.progress(0, 1, message="digging")
    ctx.wait_cancelled(600)
    ctx.raise_if_cancelled()


if __name__ == "__main__":
    serve_as_told(bb)
