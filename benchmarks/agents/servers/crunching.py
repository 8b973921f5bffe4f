"""The tool that every server offers, and the time in which it works: a minute takes a second and a half.

Nothing of a server is changed for that, so its own clocks are under test as they are: how long it holds a
call, how often it tells of progress, how long it lets a client wait. It needs nothing but Python.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import sys
import time
from typing import Any

SCALE = float(os.environ.get("BENCHMARK_SCALE", "20"))
#: In the environment of a server: the file in which its tool writes each run down.
LEDGER = "BENCHMARK_LEDGER"

_FINDINGS = (
    "The sample holds 48,112 rows in 31 columns, of which 212 rows were left out for want of a date. "
    "Returns fell by 4.1 % against the year before, most of all in the north (-9.7 %), while the south "
    "gained 1.2 %. Three of the models agree within their errors; the fourth does not converge. "
    "Recommended: look at the northern returns of March, and run the fourth model with a longer window."
)

#: What happened to the time of this process.
_time = {"quick": False}


async def crunch(case: str, seconds: float) -> str:
    """Crunch the numbers of a case, and give a report on it."""
    _write(case, "began")
    await asyncio.sleep(seconds if _time["quick"] else seconds / SCALE)
    _write(case, "ended")
    return report_on(case)


def report_on(case: str) -> str:
    """What the tool gives; its first words tell it from all else."""
    return f"Report on {case}. {_FINDINGS}"


def _write(case: str, event: str) -> None:
    line = json.dumps({"case": case, "event": event, "at": now()})
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{line}\n".encode())
    finally:
        os.close(ledger)


def now() -> float:
    """Seconds of the time that is simulated, on a clock that all processes share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC) * SCALE


def speed_up() -> None:
    """From now on the event loops of this process run that many times quicker, and `time.monotonic` on them.

    The wall clock does not, since other processes read it too; nor do threads, which wait for the disk.
    """
    _time["quick"] = True
    monotonic = time.monotonic

    class Quick(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            return super().select(None if timeout is None else timeout / SCALE)

    def on_this_thread() -> float:
        return monotonic() if asyncio._get_running_loop() is None else now()

    time.monotonic = on_this_thread
    asyncio.BaseEventLoop.time = lambda self: now()  # type: ignore[method-assign]
    selectors.DefaultSelector = Quick  # type: ignore[misc]


# At once, before a server imports what may keep `time.monotonic` itself; not in the runners of a server.
if sys.argv[0].endswith("_server.py"):
    speed_up()
