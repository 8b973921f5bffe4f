"""The app of the examples in `docs/reference/commands.md`."""

import time

from backburner import Backburner, TaskContext

bb = Backburner("lab", store="sqlite:///lab.db")


@bb.tool(retries=0)
def relax(structure: str, steps: int = 1, *, ctx: TaskContext) -> dict[str, float]:
    """Relax a structure until its forces are small."""
    if steps < 0:
        raise ValueError("a number of steps")
    print(f"reading {structure}", flush=True)
    for step in range(steps):
        ctx.progress(step, steps, phase="relaxation")
        time.sleep(0.001)
    ctx.artifact(b"positions", name="opt.traj", kind="trajectory")
    return {"energy_ev": -130.2}


@bb.tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@bb.tool
def choose(ctx: TaskContext) -> str:
    """Ask for a material and a basis."""
    fields = {"name": {"type": "string"}, "confirm": {"type": "boolean"}, "basis": {"type": "string"}}
    schema = {"type": "object", "properties": fields}
    return ctx.ask_all({"basis": ("Which material, in which basis?", schema)})["basis"].action


if __name__ == "__main__":
    bb.run()
