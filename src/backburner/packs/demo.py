"""The app of `backburner demo`: the files pack, the science pack if it is installed, and two other tools."""

from __future__ import annotations

import importlib.util
import time
from typing import Annotated, Any

from pydantic import Field

from ..app import Backburner
from ..tools.context import TaskContext
from . import files

HAS_SCIENCE = importlib.util.find_spec("ase") is not None

bb = Backburner("demo")
files.add_to(bb)
if HAS_SCIENCE:
    from . import science

    science.add_to(bb)


@bb.tool(estimate=lambda inputs: inputs["up_to"] / 10_000)
def count_primes(
    up_to: Annotated[int, Field(description="The largest number")], *, ctx: TaskContext
) -> dict[str, Any]:
    """Count the primes up to a number, slowly, and resume from the last checkpoint when killed."""
    known = ctx.checkpoint_data or {"reached": 1, "primes": 0}
    reached, primes, began_at = known["reached"], known["primes"], known["reached"]
    step = max(1, up_to // 50)
    while reached < up_to:
        ctx.raise_if_cancelled()
        after = min(reached + step, up_to)
        primes += sum(_is_prime(number) for number in range(reached + 1, after + 1))
        reached = after
        time.sleep(0.05)
        ctx.progress(reached, up_to, phase="counting", message=f"{primes} primes up to {reached}")
        ctx.checkpoint({"reached": reached, "primes": primes})
    return {"up_to": up_to, "primes": primes, "began_at": began_at, "attempts": ctx.attempt}


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


@bb.tool
def dig_for_gold(*, ctx: TaskContext) -> str:
    """Dig until cancelled."""
    depth = 0
    while not ctx.wait_cancelled(0.1):
        depth += 1
        ctx.progress(phase="digging", message=f"{depth} m deep, no gold yet")
    ctx.raise_if_cancelled()
    return "gold"
