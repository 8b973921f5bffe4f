"""Many tasks while a monkey kills, stops, cuts and sets clocks: nothing is lost, doubled or overlapping."""

import contextlib
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from backburner.core.lifecycle import State
from backburner.engines.local import SupervisorLock
from tests.contracts.engine.base import Work, eventually
from tests.integration.engine import submitting
from tests.integration.engine.conftest import StartHost, StartLocal
from tests.integration.engine.local import Client, Local, kill
from tests.integration.engine.partition import Partition
from tests.integration.engine.submitting import QUICK
from tests.ledger import SEED, nothing_is_lost_doubled_or_overlapping
from tests.services import WallClock, accepts, free_port, wait_until

pytestmark = pytest.mark.slow

LONGEST_TROUBLE_S = 7.0
#: For a soak: how long the monkey goes on in each test.
CHAOS_S = float(os.environ.get("BACKBURNER_CHAOS_S", "6"))


class Monkey(threading.Thread):
    """Makes trouble on hosts now and then, until it is called off; then all that it did is undone."""

    def __init__(
        self, hosts: Sequence[Local], ways: Sequence[Partition] = (), clock: WallClock | None = None
    ) -> None:
        super().__init__(name="monkey")
        self.troubles: dict[str, int] = defaultdict(int)
        self._hosts, self._ways, self._clock = hosts, ways, clock
        self._random = random.Random(SEED)
        self._over = threading.Event()
        self._endings: list[tuple[float, Callable[[], object]]] = []
        self._kinds: dict[Callable[[], None], int] = {
            self._kill_runner: 16,
            self._kill_zygote: 2,
            self._kill_supervisor: 3,
            self._stop_supervisor: 2,
        }
        if ways:
            self._kinds.update({self._cut: 1, self._freeze: 1})
        if clock is not None:
            self._kinds[self._set_clock] = 2

    def run(self) -> None:
        while not self._over.wait(self._random.uniform(0.02, 0.4)):
            self._undo(before=time.monotonic())
            trouble = self._random.choices([*self._kinds], [*self._kinds.values()])[0]
            with contextlib.suppress(psutil.Error):
                trouble()

    def call_off(self) -> None:
        self._over.set()
        self.join()
        self._undo(before=float("inf"))

    def _undo(self, before: float) -> None:
        due = [ending for ending in self._endings if ending[0] <= before]
        for ending in due:
            self._endings.remove(ending)
            with contextlib.suppress(psutil.Error):
                ending[1]()

    def _for_a_while(self, ending: Callable[[], object]) -> None:
        length_s = self._random.choice([0.1, 0.5, LONGEST_TROUBLE_S]) * self._random.random()
        self._endings.append((time.monotonic() + length_s, ending))

    def _supervisor(self) -> psutil.Process | None:
        pid = self._random.choice(self._hosts).supervisor_pid()
        return None if pid is None else psutil.Process(pid)

    def _kill(self, what: str, victims: Sequence[psutil.Process]) -> None:
        if victims:
            kill(self._random.choice(victims))
            self.troubles[f"{what} killed"] += 1

    def _kill_runner(self) -> None:
        if (supervisor := self._supervisor()) is not None:
            zygotes = supervisor.children()
            self._kill("runner", [runner for zygote in zygotes for runner in zygote.children()])

    def _kill_zygote(self) -> None:
        if (supervisor := self._supervisor()) is not None:
            self._kill("zygote", supervisor.children())

    def _kill_supervisor(self) -> None:
        if (supervisor := self._supervisor()) is not None:
            self._kill("supervisor", [supervisor])

    def _stop_supervisor(self) -> None:
        if (supervisor := self._supervisor()) is not None:
            supervisor.suspend()
            self._for_a_while(supervisor.resume)
            self.troubles["supervisor stopped"] += 1

    def _cut(self) -> None:
        way = self._random.choice(self._ways)
        way.cut()
        self._for_a_while(way.mend)
        self.troubles["host cut off"] += 1

    def _freeze(self) -> None:
        way = self._random.choice(self._ways)
        way.freeze()
        self._for_a_while(way.mend)
        self.troubles["connections frozen"] += 1

    def _set_clock(self) -> None:
        assert self._clock is not None
        self._clock.set(self._random.uniform(-2, 2))
        self.troubles["clock set"] += 1


def submit_under_chaos(monkey: Monkey, work: Work, ledger: Path, count: int) -> dict[str, str]:
    """Submit tasks over the time of the chaos; their ids, and the kind of each."""
    ledger.mkdir()
    print("seed", SEED)
    chance = random.Random(SEED)
    tasks: dict[str, str] = {}
    monkey.start()
    try:
        began = time.monotonic()
        for number in range(count):
            kind = chance.choice(["quick", "quick", "busy", "child", "checkpoint", "cancelled"])
            seconds = chance.choice([0.1, 0.3, 1.0]) * chance.random()
            task_id = work.submit("ledgered", kind=kind, ledger=str(ledger), seconds=seconds)
            tasks[task_id] = kind
            if kind == "cancelled":
                work.service.cancel(task_id)
            pause = began + CHAOS_S * number / count - time.monotonic()
            if pause > 0:
                time.sleep(pause)
    finally:
        monkey.call_off()
    print("troubles", dict(monkey.troubles))
    assert sum(monkey.troubles.values()) > CHAOS_S / 2
    return tasks


@pytest.mark.timeout(300 + 2 * CHAOS_S)
def test_under_chaos_nothing_is_lost_doubled_or_overlapping(start_local: StartLocal, tmp_path: Path) -> None:
    local = start_local(supervisor=QUICK, queues={"cpu_standard": 3, "one_by_one": 1})
    monkey, ledger = Monkey([local]), tmp_path / "ledger"
    tasks = submit_under_chaos(monkey, local, ledger, count=int(10 * CHAOS_S))
    nothing_is_lost_doubled_or_overlapping(local, tasks, ledger)


@pytest.mark.whole
@pytest.mark.timeout(300 + 2 * CHAOS_S)
def test_under_chaos_with_a_clock_that_jumps_nothing_is_lost_doubled_or_overlapping(
    start_local: StartLocal, tmp_path: Path, wall_clock: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_clock.show_to_children(monkeypatch)
    local = start_local(supervisor=QUICK, queues={"cpu_standard": 3, "one_by_one": 1})
    monkey, ledger = Monkey([local], clock=wall_clock), tmp_path / "ledger"
    tasks = submit_under_chaos(monkey, local, ledger, count=int(10 * CHAOS_S))
    nothing_is_lost_doubled_or_overlapping(local, tasks, ledger)


@pytest.mark.whole
@pytest.mark.timeout(300 + 2 * CHAOS_S)
def test_under_chaos_on_two_hosts_nothing_is_lost_doubled_or_overlapping(
    start_host: StartHost,
    client: Client,
    tmp_path: Path,
    wall_clock: WallClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall_clock.show_to_children(monkeypatch)
    (one, its_way), (other, its_own) = start_host("one", **QUICK), start_host("other", **QUICK)
    monkey, ledger = Monkey([one, other], [its_way, its_own], wall_clock), tmp_path / "ledger"
    tasks = submit_under_chaos(monkey, client, ledger, count=int(4 * CHAOS_S))
    nothing_is_lost_doubled_or_overlapping(client, tasks, ledger)


class Crowd:
    """A server with a client, and others that submit by themselves: all at once, until they are killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port = str(free_port())
        self.programs = [self._start(*how) for how in (("serve", port), ("itself",), ("itself",))]
        assert wait_until(lambda: accepts(port)), "the server did not come up"
        self.programs.append(self._start("ask", port))

    def _start(self, *how: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", submitting.__name__, str(self._folder), *how])

    def acknowledge(self, count: int) -> None:
        """Return when so many more tasks were acknowledged, some by each of those who submit."""
        notes = [self._folder / f"acknowledged-{program.pid}" for program in self.programs[1:]]

        def lines() -> list[int]:
            return [note.read_text().count("\n") if note.exists() else 0 for note in notes]

        before = lines()
        eventually(lambda: sum(lines()) >= sum(before) + count and all(map(int.__gt__, lines(), before)))
        assert [program.poll() for program in self.programs] == [None] * len(self.programs)

    def end(self) -> None:
        for program in self.programs:
            program.kill()
            program.wait()


@pytest.mark.whole
@pytest.mark.timeout(300 + 3 * CHAOS_S)
def test_under_chaos_that_kills_everybody_no_task_that_was_acknowledged_is_lost(
    start_local: StartLocal, tmp_path: Path
) -> None:
    """Nor is one there twice. Server, client, submitters, supervisor and runners die in any order."""
    (tmp_path / "ledger").mkdir()
    print("seed", SEED)
    chance = random.Random(SEED)
    lock = SupervisorLock(submitting.make_app(tmp_path).data_dir)
    began, rounds = time.monotonic(), 0
    while rounds < 3 or time.monotonic() < began + CHAOS_S:
        rounds += 1
        crowd = Crowd(tmp_path)
        try:
            crowd.acknowledge(chance.randrange(1, 300))
            if rounds % 2:  # at first only those die who work: those who submit must find a way on
                kill(*_family_of(lock))
                crowd.acknowledge(chance.randrange(1, 100))
            victims = [*map(psutil.Process, [program.pid for program in crowd.programs]), *_family_of(lock)]
            chance.shuffle(victims)
            kill(*victims)
        finally:
            crowd.end()

    local = start_local(supervisor=QUICK, queues={"cpu_standard": 2, "one_by_one": 1})
    acknowledged = [
        task_id for notes in tmp_path.glob("acknowledged-*") for task_id in notes.read_text().split()
    ]
    print("rounds", rounds, "acknowledged", len(acknowledged))
    found = list(_all_tasks(local))
    assert set(acknowledged) <= set(found)
    assert len(set(acknowledged)) == len(acknowledged)
    inputs = {str(local.store.get(task_id).inputs) for task_id in found}
    assert len(inputs) == len(found), "a task is there twice"
    nothing_is_lost_doubled_or_overlapping(local, dict.fromkeys(found, "any"), tmp_path / "ledger")


def _family_of(lock: SupervisorLock) -> list[psutil.Process]:
    """The supervisor that is there now, or comes in a moment, and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor = psutil.Process(eventually(lambda: (lock.holder() or {}).get("pid")))
        return [supervisor, *supervisor.children(recursive=True)]
    return []


def _all_tasks(work: Work) -> Iterator[str]:
    cursor = None
    while True:
        page = work.service.list(limit=100, cursor=cursor)
        yield from (task.task_id for task in page.tasks)
        if (cursor := page.next_cursor) is None:
            return


@pytest.mark.whole
def test_a_thousand_cancels_at_any_moment_end_in_exactly_one_way(start_local: StartLocal) -> None:
    local = start_local(sqlite={"synchronous": "normal"})
    chance = random.Random(1)

    def race(usual_s: float) -> State:
        task_id = local.submit("sleep", seconds=chance.uniform(0, 0.004))
        time.sleep(chance.uniform(0, 3 * usual_s))
        local.service.cancel(task_id)
        task = local.end(task_id)
        ends = [event for event in local.events(task_id) if event.to_state in ("cancelled", "succeeded")]
        assert len(ends) == 1
        assert task.state in (State.CANCELLED, State.SUCCEEDED)
        assert (task.result is not None) == (task.state is State.SUCCEEDED)
        return task.state

    states: list[State] = []
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):  # others may take the machine meanwhile, or leave it
            usual_s = statistics.median(_seconds_of(local) for _ in range(9))
            states += pool.map(race, [usual_s] * 100)
    assert min(states.count(State.CANCELLED), states.count(State.SUCCEEDED)) > 10


def _seconds_of(local: Local) -> float:
    """How long a task takes here and now, from its submission to its end."""
    began = time.monotonic()
    local.run("sleep", seconds=0.002)
    return time.monotonic() - began
