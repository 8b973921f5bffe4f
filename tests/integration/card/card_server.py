"""A server whose slow tools show all that a card can show.

python card_server.py http PORT
"""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from typing import Any, Literal

from backburner import Backburner, TaskContext
from tests.told_transport import serve_as_told

#: What nobody should see as more than text: markup, escapes of terminals, turned and hidden characters.
HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(1)</script>"
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x07\u202egpj.exe\u2066\x00"
)
SVG = b"""<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60" onload="alert(1)">
<script>alert(1); fetch("http://elsewhere.test/")</script><image href="http://elsewhere.test/x.png"/>
<rect width="90" height="60" fill="teal"/></svg>"""

bb = Backburner("card-tests")


def picture(width: int = 320, height: int = 180) -> bytes:
    """A PNG of a curve that falls."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            curve = 20 + (height - 40) * (1 - 1 / (1 + x / 40))
            near = abs(y - curve) < 2
            axis = x in (18, 19) or y in (height - 18, height - 17)
            rows += bytes((37, 99, 184) if near and x > 19 else (120, 120, 116) if axis else (250, 249, 246))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b"")


@bb.tool(title="Relax a structure", queue="io", estimate=30)
def relax(
    stop_at: int = 62, gate: str = "", files: bool = True, go_on: bool = False, *, ctx: TaskContext
) -> dict[str, Any]:
    """Relax a structure: to `stop_at` per cent, halfway of which it waits for a file, if one is named.

    There it waits until it is cancelled, or goes on.
    """
    for step in range(stop_at + 1):
        ctx.progress(step, 100, phase="Relaxation", message="energy decrease is stable")
        if step % 2 == 0:
            ctx.log(f"step {step:3d}   energy {-11.2 - 2.4 * step / 100:.4f} eV   fmax {2 / (1 + step):.3f}")
        while gate and step == stop_at // 2 and not Path(gate).exists():
            ctx.wait_cancelled(0.05)
            ctx.raise_if_cancelled()
    if files:
        ctx.artifact(picture(), name="convergence.png", kind="image/png")
        ctx.artifact(b"frame\n" * 3000, name="opt.traj", kind="trajectory")
    if not go_on:
        ctx.wait_cancelled(600)
        ctx.raise_if_cancelled()
    return {"energy_ev": -13.5721, "converged": True, "n_steps": stop_at}


@bb.tool(
    output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)
def typed(n: int = 1) -> dict[str, int]:
    """A tool with an output schema."""
    return {"n": n}


@bb.tool(asks="client", retries=0)
def ask(ctx: TaskContext) -> str:
    """Ask for many kinds of things."""
    answer = ctx.ask(
        "How shall the run go on?",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "Name of the run", "minLength": 2},
                "method": {"type": "string", "enum": ["pbe", "scan"], "enumNames": ["PBE", "r2SCAN"]},
                "steps": {"type": "integer", "minimum": 1, "maximum": 500, "default": 200},
                "spin": {"type": "boolean", "title": "Spin-polarised"},
                "keep": {"type": "array", "items": {"type": "string", "enum": ["forces", "stress"]}},
            },
            "required": ["name", "method"],
        },
    )
    return f"{answer.action}: {sorted((answer.content or {}).items())}"


@bb.tool
def ask_with_link(ctx: TaskContext) -> str:
    """Send its user to a page."""
    link = {
        "mode": "url",
        "message": "Sign in, please",
        "url": "https://elsewhere.test/",
        "elicitationId": "1",
    }
    return str(ctx.request_all({"link": ("elicitation/create", link)})["link"]["action"])


@bb.tool(ask_first={"user": ("May it begin?", None)})
def asks_first(ctx: TaskContext) -> str:
    """Ask before the work begins."""
    return ctx.answers["user"].action


@bb.tool(retries=0)
def hostile(how: Literal["result", "error"] = "result", *, ctx: TaskContext) -> Any:
    """Say, make and give back what is meant to do harm."""
    ctx.progress(1, 2, phase=HOSTILE, message=HOSTILE)
    ctx.log(HOSTILE)
    ctx.log("x" * 3_000_000)
    ctx.artifact(SVG, name="<b>drawing.svg", kind="image/svg+xml")
    ctx.artifact(b"<script>alert(1)</script>", name="\u202epage.html", kind="text/html")
    if how == "error":
        raise RuntimeError(HOSTILE)
    return {"<b>key</b>": HOSTILE.replace("\0", "")}


@bb.tool
def long_line(chars: int, printed: bool, *, ctx: TaskContext) -> None:
    """Write one line of that length, of what is meant to do harm."""
    line = (HOSTILE.replace("\0", "") * (chars // 50))[:chars]
    if printed:
        print(line)
    else:
        ctx.log(line)


@bb.tool
def large(size: int, *, ctx: TaskContext) -> str:
    """Make a file of that size."""
    ctx.artifact(b"\x07" * size, name="large.bin")
    return "made"


@bb.tool(card=False)
def plain() -> str:
    """A tool whose author wants no card."""
    return "plain"


@bb.tool(answer="hold", output_schema={"type": "object", "required": ["held"]})
def hold() -> dict[str, bool]:
    """A tool whose author wants its calls held."""
    return {"held": True}


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
