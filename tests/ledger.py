"""The chaos ledger: tasks that write down when they begin, faults that happen meanwhile, and what must hold.

An engine's faults are its plan. By default a few of them happen, each once, while tasks are at work and wait:
with `make test-whole` all do, and with BACKBURNER_CHAOS_S they go on for so long, in any order.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from backburner.core.lifecycle import TERMINAL, State
from tests.contracts.engine.base import Work, eventually, is_alive
from tests.whole import WHOLE

Fault = Callable[[], object]

#: On a busy machine, what was killed again and again is not over at once.
PATIENCE_S = 100
#: What the work of tasks is like: each of these is submitted before each fault.
KINDS = ("child", "busy", "checkpoint", "quick")
#: Leases that are soon over, so that nobody waits for half a minute.
QUICK = {"heartbeat_s": 0.3, "lease_grace_s": 3.0, "keeper_interval_s": 0.2}
SEED = int(os.environ.get("BACKBURNER_CHAOS_SEED", str(time.time_ns() % 10**6)))
_GOES_ON_S = float(os.environ.get("BACKBURNER_CHAOS_S", "0"))
#: A test has so long.
LONGEST_S = 600 + 2 * _GOES_ON_S


def withstands(work: Work, plan: Sequence[Fault], ledger: Path, *, usual: int, seconds: float = 1.0) -> None:
    """Under each fault of the plan no task is lost, no attempt runs twice, and no two of a task overlap.

    The first of the plan are the `usual` ones.
    """
    if not (WHOLE or _GOES_ON_S):
        plan = plan[:usual]
    ledger.mkdir()
    print("seed", SEED)
    chance, began = random.Random(SEED), time.monotonic()
    tasks: dict[str, str] = {}
    faults = [*plan]
    while faults:
        for fault in faults:
            since = time.monotonic()
            given: dict[str, Any] = {"ledger": str(ledger), "seconds": seconds}
            new = {work.submit("ledgered", kind=kind, **given): kind for kind in KINDS}
            tasks |= new
            eventually(partial(_any_is_begun, work, new))
            fault()
            print(f"{_name(fault)}: {time.monotonic() - since:.1f} s")
        goes_on = time.monotonic() < began + _GOES_ON_S
        faults = chance.sample(plan, len(plan)) if goes_on else []
    nothing_is_lost_doubled_or_overlapping(work, tasks, ledger)
    print(f"{len(tasks)} tasks: {time.monotonic() - began:.1f} s")


def _name(fault: Fault) -> str:
    return str(getattr(fault, "func", fault).__qualname__).rpartition("<locals>.")[2]


def _any_is_begun(work: Work, task_ids: Iterable[str]) -> bool:
    waits = (State.QUEUED, State.SCHEDULED)
    return any(work.store.head(task_id).state not in waits for task_id in task_ids)


def nothing_is_lost_doubled_or_overlapping(work: Work, tasks: dict[str, str], ledger: Path) -> None:
    for task_id, kind in tasks.items():
        task = work.service.wait(task_id, PATIENCE_S).task
        ends = [event for event in work.events(task_id) if event.to_state in TERMINAL]
        assert len(ends) == 1, (task, work.events(task_id))
        expected = {State.SUCCEEDED} | ({State.CANCELLED} if kind == "cancelled" else set())
        assert task.state in expected, (kind, task.error, work.trail(task_id))
        _attempts_follow_each_other(work, task_id)
    assert not any(depth.queued or depth.leased for depth in work.store.queue_depths())
    lines = (ledger / "ledger").read_text().splitlines()
    assert [line for line in lines if not line.startswith("begin ")] == []
    assert len(set(lines)) == len(lines), "an attempt was run twice"


def _attempts_follow_each_other(work: Work, task_id: str) -> None:
    """By the trail, an attempt ends before the next begins."""
    held = 0
    for event in work.events(task_id):
        if event.signal == "claim":
            assert held == 0, work.trail(task_id)
            held = event.attempt
        elif event.signal in ("retry", "hand_back", "succeed", "fail", "confirm", "time_out"):
            assert event.attempt == held
            held = 0


# -- what faults are made of


def family(process: psutil.Process) -> list[psutil.Process]:
    """It and all that are under it, as far as they are there."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def power_cut(processes: Sequence[psutil.Process]) -> None:
    """Kill them all, before any can react."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not any(is_alive(process.pid) for process in processes))


def runner_at_work(work: Work) -> psutil.Process:
    """A process in which a task runs now."""

    def found() -> psutil.Process | None:
        for lease in work.store.leases():
            pids = [each.pid for each in work.store.attempts(lease.task_id) if each.pid and not each.ended_at]
            if pids and is_alive(pids[-1]):
                return psutil.Process(pids[-1])
        return None

    return eventually(found)


def supervisor_stopped_beyond_its_lease(work: Work) -> None:
    """The supervisor of a task at work is stopped, until the task's runner has ended by itself, and woken."""
    runner = runner_at_work(work)
    supervisor = runner.parents()[1]
    with stopped(supervisor):
        eventually(lambda: not is_alive(runner.pid))


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """It does nothing meanwhile, and does not know it afterwards."""
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
