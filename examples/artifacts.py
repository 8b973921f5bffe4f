"""A tool that makes files. Each is an artifact: kept with the task, with its hash, to be fetched later."""

import csv
import json
import random

from backburner import Backburner, TaskContext

bb = Backburner("survey")


@bb.tool(estimate=lambda inputs: inputs["walks"] / 2_000)
def random_walks(walks: int, steps: int = 100, seed: int = 1, *, ctx: TaskContext) -> dict[str, float]:
    """Simulate random walks; the table and a summary are artifacts."""
    chance = random.Random(seed)
    ends: list[int] = []
    with (ctx.scratch / "walks.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["walk", "end"])
        for walk in range(walks):
            ctx.raise_if_cancelled()
            ends.append(sum(chance.choice((-1, 1)) for _ in range(steps)))
            table.writerow([walk, ends[-1]])
            ctx.progress(walk + 1, walks, message=f"Walk {walk + 1} of {walks}")
    summary = {"mean": sum(ends) / walks, "largest": float(max(map(abs, ends)))}
    ctx.artifact("walks.csv", kind="table")
    ctx.artifact(json.dumps(summary).encode(), "summary.json", kind="summary")
    return summary


if __name__ == "__main__":
    bb.run()
