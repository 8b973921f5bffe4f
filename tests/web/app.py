"""The app whose API the tests use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

bb = Backburner("web")

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@bb.tool(secrets=["key"])
def count(n: int = 3, key: str = "", *, ctx: TaskContext) -> dict[str, object]:
    """Count to n, with a line for each."""
    for i in range(1, n + 1):
        ctx.progress(i, n, phase="counting")
        ctx.log(f"step {i}")
    ctx.artifact(b"0123456789" * 100, "digits.txt")
    return {"counted": n, "key_chars": len(key)}


@bb.tool
def wait(*, ctx: TaskContext) -> None:
    """Go on until it is cancelled."""
    ctx.log("waiting")
    ctx.wait_cancelled(600)
    ctx.raise_if_cancelled()


@bb.tool(retries=0)
def fail(reason: str = "it broke") -> None:
    """Fail."""
    raise RuntimeError(reason)


@bb.tool
def ask(ctx: TaskContext) -> str:
    """Ask for a name."""
    answer = ctx.ask("Your name?", NAME)
    return f"Hello, {answer.content['name']}!" if answer.accepted else f"no: {answer.action}"


@bb.tool(queue="cpu_heavy")
def long_line(chars: int = 2_500_000) -> None:
    """Print one line that no page can hold, and one after it."""
    print("x" * chars)
    print("after")


@bb.tool
def hostile(text: str = "", *, ctx: TaskContext) -> dict[str, object]:
    """Make everything of a text that means no good."""
    ctx.progress(1, 1, phase=text)
    ctx.log(text)
    print(f"\x1b]0;title\x07\x1b[2J\x1b[31m{text}\x1b[0m")
    ctx.artifact(b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(3)</script></svg>", "drawing.svg")
    ctx.artifact(text.encode(), f"{text[:60]}.html".replace("/", "_"))
    return {text: [text, {"deep": text}]}


@bb.tool
def half(*, ctx: TaskContext) -> None:
    """Get half way, and wait there until it is cancelled."""
    ctx.progress(1, 2, phase="half way")
    ctx.wait_cancelled(600)
    ctx.raise_if_cancelled()


@bb.tool(secrets=["key"])
def shaped(
    name: Annotated[str, Field(pattern="^[a-z]+$", description="Small letters")],
    sizes: list[int],
    box: dict[str, int],
    mode: Literal["fast", "fine"] = "fast",
    note: str | None = None,
    loud: bool = True,
    key: str = "",
) -> dict[str, object]:
    """Take inputs of all shapes.

    And give them back.
    """
    return {"name": name, "sizes": sizes, "box": box, "mode": mode, "note": note, "loud": loud}


if __name__ == "__main__":
    serve_as_told(bb)
