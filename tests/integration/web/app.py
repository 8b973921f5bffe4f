"""The app whose API the tests use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

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


@bb.tool(retries=0)
def ask_anything(params: Any, method: str = "elicitation/create", *, ctx: TaskContext) -> str:
    """Send any request to the client."""
    return str(ctx.request_all({"answer": (method, params)})["answer"]["action"])


@bb.tool(retries=0)
def ask_so(message: Any, schema: Any = None, *, ctx: TaskContext) -> str:
    """Ask with any message and schema."""
    return ctx.ask(message, schema).action


@bb.tool(queue="cpu_heavy")
def long_line(chars: int = 2_500_000, text: str = "x") -> None:
    """Print one line that no page can hold, and one after it."""
    print((text * (chars // len(text) + 1))[:chars])
    print("after")


@bb.tool
def hostile(text: str = "", *, ctx: TaskContext) -> dict[str, object]:
    """Make everything of a text that means no good."""
    ctx.progress(1, 1, phase=text)
    ctx.log(text)
    print(f"\x1b]0;title\x07\x1b[2J\x1b[31m{text}\x1b[0m")
    ctx.artifact(b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(3)</script></svg>", "drawing.svg")
    ctx.artifact(text.encode(), f"{text[:60]}.html".replace("/", "_"))
    ctx.artifact(b"document.title = 'taken over'", "../../run.js")
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


# -- for the page of a task

HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>\x1b]0;title\x07\u202egpj.exe"
SVG = b"""<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60" onload="alert(1)">
<script>alert(1); fetch("http://elsewhere.test/")</script><image href="http://elsewhere.test/x.png"/>
<rect width="90" height="60" fill="teal"/></svg>"""


@bb.tool
def paint(ctx: TaskContext) -> dict[str, object]:
    """Show what may be shown of a task: colours, files, a deep result, and what should do nothing."""
    ctx.log(
        "\x1b[1;31mred\x1b[0m \x1b[38;5;33mblue\x1b[0m"
        " \x1b[38;2;40;200;40mgreen\x1b[0m \x1b[4mline\x1b[24m end"
    )
    ctx.log("10 %\r 50 %\r100 %")
    ctx.log(HOSTILE + "\b", level="error")
    ctx.log("y" * 12_000)
    ctx.log("the last line")
    ctx.artifact(SVG, "<b>drawing.svg")
    ctx.artifact(b'{"forces": [1, 2]}', "\u202eforces.json")
    ctx.artifact(b"no page" * 20_000, "page.html")
    return {"name": HOSTILE, "atoms": [{"at": [0, i]} for i in range(300)], "text": "z" * 5000}


@bb.tool
def flood(lines: int = 12_000) -> str:
    """Write many lines."""
    for i in range(1, lines + 1):
        print(f"number {i}")
    return "done"


@bb.tool(retries=1)
def halfway(ctx: TaskContext) -> str:
    """Fail once; then go half the way, and ask whether to go on."""
    if ctx.attempt == 1:
        raise ValueError("not yet")
    ctx.progress(1, 2, phase="first half")
    return ctx.ask("Go on?").action


@bb.tool
def bar(gate: str, ctx: TaskContext) -> None:
    """Draw a progress bar as tqdm does, and wait for the file `gate` halfway and `gate`-2 before the end."""
    for percent, next_gate in (("10%", ""), ("50%", gate), ("90%", f"{gate}-2"), ("100%", "")):
        sys.stderr.write(f"\r{percent}|##")
        sys.stderr.flush()
        while next_gate and not Path(next_gate).exists():
            ctx.wait_cancelled(0.02)
            ctx.raise_if_cancelled()
    sys.stderr.write("\nafter the bar\n")


if __name__ == "__main__":
    serve_as_told(bb)
