"""Many tasks while a monkey kills: nothing is lost, nothing is stuck, no attempt overlaps another."""

import contextlib
import os
import random
import statistics
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from backburner.lifecycle import TERMINAL, State
from tests.engine.conftest import StartLocal
from tests.engine.local import Local, kill

pytestmark = pytest.mark.slow

TASKS = 500


class Monkey(threading.Thread):
    """Kills a runner, a zygote or the supervisor now and then, until it is called off."""

    def __init__(self, local: Local, seed: int) -> None:
        super().__init__(name="monkey")
        self.kills: dict[str, int] = defaultdict(int)
        self._local = local
        self._random = random.Random(seed)
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._random.uniform(0.02, 0.4)):
            with contextlib.suppress(psutil.Error, AssertionError):
                self._kill(self._random.choices(["runner", "zygote", "supervisor"], [8, 1, 2])[0])

    def _kill(self, what: str) -> None:
        local = self._local
        if what == "supervisor":
            victims = [local.supervisor()]
        else:
            victims = local.runners() if what == "runner" else local.zygotes()
        if victims:
            kill(self._random.choice(victims))
            self.kills[what] += 1

    def call_off(self) -> None:
        self._over.set()
        self.join()


@pytest.mark.timeout(300)
def test_under_chaos_nothing_is_lost_or_stuck_and_no_attempts_overlap(
    start_local: StartLocal, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    chaos_s = float(os.environ.get("BACKBURNER_CHAOS_S", "20"))
    local = start_local(
        supervisor={"heartbeat_s": 0.5, "cancel_grace_s": 0.2}, queues={"cpu_standard": 3, "one_by_one": 1}
    )
    seed = int(os.environ.get("BACKBURNER_CHAOS_SEED", str(time.time_ns() % 10**6)))
    print("seed", seed)
    monkey = Monkey(local, seed)
    chance = random.Random(seed)
    monkey.start()
    try:
        began = time.monotonic()
        tasks = {}
        for number in range(TASKS):
            kind = chance.choice(["quick", "quick", "busy", "child", "checkpoint", "cancelled"])
            tasks[local.submit("marked", kind=kind, marks=str(marks), seconds=chance.uniform(0, 0.3))] = kind
            if kind == "cancelled":
                local.service.cancel(list(tasks)[-1])
            pause = began + chaos_s * number / TASKS - time.monotonic()
            if pause > 0:
                time.sleep(pause)
    finally:
        monkey.call_off()
    print("killed", dict(monkey.kills))
    assert sum(monkey.kills.values()) > chaos_s / 2
    for task_id, kind in tasks.items():
        task = local.end(task_id)
        ends = [event for event in local.events(task_id) if event.to_state in TERMINAL]
        assert len(ends) == 1, local.events(task_id)
        expected = {State.SUCCEEDED} | ({State.CANCELLED} if kind == "cancelled" else set())
        assert task.state in expected, (kind, task.error, local.trail(task_id))
    assert not any(depth.queued or depth.leased for depth in local.store.queue_depths())
    _no_overlap(marks, local, list(tasks))


def _no_overlap(marks: Path, local: Local, tasks: list[str]) -> None:
    """By the trail, an attempt ends before the next begins; by the marks, so did its processes."""
    ticks: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in marks.read_text().splitlines():
        task_id, attempt, at = line.split()
        ticks[task_id].append((int(at), int(attempt)))
    for task_id in tasks:
        in_time = [attempt for _, attempt in sorted(ticks[task_id])]
        assert in_time == sorted(in_time), f"attempts of {task_id} overlap: {in_time}"
        held = 0
        for event in local.events(task_id):
            if event.signal == "claim":
                assert held == 0, local.trail(task_id)
                held = event.attempt
            elif event.signal in ("retry", "hand_back", "succeed", "fail", "confirm", "time_out"):
                assert event.attempt == held
                held = 0


def test_a_thousand_cancels_at_any_moment_end_in_exactly_one_way(start_local: StartLocal) -> None:
    local = start_local(sqlite={"synchronous": "normal"})
    usual_s = statistics.median(_seconds_of(local) for _ in range(9))
    chance = random.Random(1)

    def race(number: int) -> State:
        task_id = local.submit("sleep", seconds=chance.uniform(0, 0.004))
        time.sleep(chance.uniform(0, 3 * usual_s))
        local.service.cancel(task_id)
        task = local.end(task_id)
        ends = [event for event in local.events(task_id) if event.to_state in ("cancelled", "succeeded")]
        assert len(ends) == 1
        assert task.state in (State.CANCELLED, State.SUCCEEDED)
        assert (task.result is not None) == (task.state is State.SUCCEEDED)
        return task.state

    with ThreadPoolExecutor(4) as pool:
        states = list(pool.map(race, range(1000)))
    assert min(states.count(State.CANCELLED), states.count(State.SUCCEEDED)) > 10


def _seconds_of(local: Local) -> float:
    """How long a task takes here and now, from its submission to its end."""
    began = time.monotonic()
    local.run("sleep", seconds=0.002)
    return time.monotonic() - began
