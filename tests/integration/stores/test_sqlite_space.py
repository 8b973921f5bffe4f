"""The room that a SQLite store takes: little for logs, less after pruning, also where the disk is full."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backburner.core.lifecycle import TERMINAL
from backburner.core.reports import Logged, Started, Succeeded
from backburner.core.task import LogLine
from backburner.engines.keeper import Keeper
from backburner.errors import StoreFull
from backburner.settings import Settings
from backburner.store import open_store
from backburner.store.protocol import Store, TaskQuery
from backburner.testing import FakeClock
from tests.contracts.store.base import QUEUE, new_task
from tests.integration.stores.small_disks import small_disk_in

pytestmark = pytest.mark.slow

CLOCK = FakeClock()
CHANCE = random.Random(1)


def log(store: Store, megabytes: float, *, ttl_s: float | None = None) -> tuple[str, int]:
    """A finished task that wrote lines as tools do; its id, and the bytes of its lines."""
    task_id = store.submit(new_task(CLOCK, ttl_s=ttl_s)).task.task_id
    (lease,) = store.claim([QUEUE], ["w1"])
    store.report(lease, Started())
    seq = written = 0
    while written < megabytes * 1_000_000:
        lines = []
        for _ in range(CHANCE.randrange(1, 200)):
            seq += 1
            energy, force = CHANCE.gauss(-1500, 2), CHANCE.expovariate(20)
            text = (
                f"step {seq:8d}  E = {energy:14.6f} eV  max|F| = {force:9.6f}  the lattice is relaxed further"
            )
            lines.append(LogLine(seq, CLOCK.now_ms() + seq, "stdout", "info", text))
            written += len(text) + 1
        store.report(lease, Logged(tuple(lines)))
    store.report(lease, Succeeded("1"))
    return task_id, written


def on_disk(path: Path) -> int:
    """What the store's files have, once the write-ahead log is in the file."""
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*") if file.is_file())


def log_without_end(store: Store) -> None:
    while True:
        log(store, 0.2)


def prune(store: Store) -> None:
    for task in store.page(TaskQuery(limit=500, states=TERMINAL)):
        store.delete(task.task_id)
    while store.give_back(keep_bytes=0):
        pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{path}", clock=CLOCK)
    yield store
    store.close()


# -- little for logs, and less after pruning


@pytest.mark.whole
def test_a_log_takes_a_third_of_its_lines_at_most_while_its_task_runs(store: Store, path: Path) -> None:
    _, written = log(store, 5)
    while store.give_back(keep_bytes=0):
        pass  # until the write-ahead log is empty
    assert on_disk(path) < written / 3


def test_pruning_gives_the_disk_back(store: Store, path: Path) -> None:
    _, written = log(store, 5)
    prune(store)
    assert on_disk(path) < written / 10


def test_the_keeper_gives_back_what_expired_tasks_left(store: Store, path: Path) -> None:
    task_id, _ = log(store, 1, ttl_s=1)
    noise = tuple(LogLine(n, n, "stdout", "info", CHANCE.randbytes(8000).hex()) for n in range(1, 1001))
    store.submit(new_task(CLOCK, ttl_s=1))
    (lease,) = store.claim([QUEUE], ["w1"])
    store.report(lease, Started(), Logged(noise), Succeeded("1"))
    CLOCK.advance(2)
    swept = Keeper(store, Settings(store=store.url), "k1", clock=CLOCK).sweep()
    assert swept is not None
    assert sorted(swept.expired) == sorted([task_id, lease.task_id])
    assert path.stat().st_size < 6_000_000  # with four megabytes that the next tasks will take


def test_others_read_on_while_room_is_given_back(store: Store, path: Path) -> None:
    kept, _ = log(store, 1)
    gone, _ = log(store, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        seen = reader.execute("SELECT count(*) FROM task_log_chunks").fetchone()
        store.delete(gone)
        while store.give_back(keep_bytes=0):
            pass
        assert reader.execute("SELECT count(*) FROM task_log_chunks").fetchone() == seen
    lines = store.logs(kept, limit=100_000)
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))


# -- a disk that is nearly full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk_in(tmp_path, megabytes=6) as disk:
        yield disk


@pytest.mark.whole
def test_pruning_works_on_a_disk_that_is_nearly_full(small_disk: Path) -> None:
    path, filler = small_disk / "tasks.db", small_disk / "filler"
    with closing(open_store(f"sqlite:///{path}", clock=CLOCK)) as store:
        filler.write_bytes(bytes(200_000))
        with pytest.raises(StoreFull):
            log_without_end(store)
        filler.unlink()
        prune(store)
        assert shutil.disk_usage(small_disk).free > 5_000_000
        log(store, 0.2)
