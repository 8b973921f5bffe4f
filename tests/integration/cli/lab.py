"""The app that the tests drive. A tool that gets a `gate` waits until that file is there."""

import sys
from pathlib import Path

from backburner import Backburner, TaskContext

bb = Backburner("lab", store="sqlite:///lab.db", supervisor={"idle_exit_s": 1, "drain_grace_s": 20})

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x9b31m [bold red]markup[/] \u202ereversed\x7f\r\n\tnext"
HOSTILE += "\u200bin\u00advisi\U000e0041ble"


def _wait(gate: str, ctx: TaskContext) -> None:
    while gate and not Path(gate).exists():
        ctx.wait_cancelled(0.02)
        ctx.raise_if_cancelled()


@bb.tool(estimate=8)
def relax(structure: str, gate: str = "", *, ctx: TaskContext) -> dict[str, object]:
    """Relax a structure until its forces are small."""
    print(f"reading {structure}", flush=True)
    if structure == "fe":
        ctx.log("the forces are large", level="warning")
    ctx.progress(17, 40, phase="relaxation", message="Energy decrease stable")
    _wait(gate, ctx)
    print("done", flush=True)
    ctx.artifact(b"positions", name="opt.traj", kind="trajectory")
    return {"energy_ev": -130.2, "structure": structure}


@bb.tool
def add(a: int, b: int = 2) -> int:
    return a + b


@bb.tool(retries=0)
def boom() -> None:
    raise ValueError("no such element")


@bb.tool(retries=0)
def hostile(fail: bool = False, *, ctx: TaskContext) -> dict[str, str]:
    print(HOSTILE, flush=True)
    ctx.progress(1, 2, phase=HOSTILE, message=HOSTILE)
    ctx.artifact(b"x", name=HOSTILE, kind="[red]")
    if fail:
        raise ValueError(HOSTILE)
    return {HOSTILE: HOSTILE}


@bb.tool
def speak() -> str:
    return f"first\nsecond {HOSTILE}"


@bb.tool
def report(ctx: TaskContext) -> None:
    ctx.log("first\nsecond\x1b[2J", level="warning")


@bb.tool
def ask(ctx: TaskContext) -> str:
    schema = {"type": "object", "properties": {"element": {"type": "string"}}, "required": ["element"]}
    answer = ctx.ask("Which element?", schema)
    return f"{answer.action} {answer.content}"


@bb.tool(secrets=["token"])
def fetch(url: str, token: str) -> str:
    return url


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


@bb.tool(retries=0)
def missing() -> str:
    known: dict[str, str] = {}
    return known["name"]


@bb.tool(retries=0, memory_mb=64)
def eat() -> int:
    return len(bytearray(1 << 30))
