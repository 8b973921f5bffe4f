"""Concurrent callers share commits, and one that fails does not disturb the others."""

import contextlib
import fcntl
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backburner.core.lifecycle import State
from backburner.core.times import SystemClock
from backburner.errors import IdempotencyConflict, StoreError
from backburner.store import open_store
from backburner.store.protocol import Store
from tests.contracts.store.base import new_task
from tests.services import wait_until

CLOCK = SystemClock()
CALLERS = 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/tasks.db")
    yield store
    store.close()


def commits(wal: Path) -> int:
    """The commits in a SQLite log: its frames that say how large the database is after them."""
    content = wal.read_bytes()
    page_size = struct.unpack(">I", content[8:12])[0]
    sizes = [content[at + 4 : at + 8] for at in range(32, len(content), 24 + page_size)]
    return sum(size != bytes(4) for size in sizes)


@pytest.fixture
def nobody_gives_way() -> Iterator[None]:
    """A thread runs until it has to wait for something, however busy the machine is."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(usual)


@contextlib.contextmanager
def writing_as_another_process(folder: Path) -> Iterator[None]:
    """Nobody else can write to the store for as long as this lasts."""
    with (folder / "tasks.db.d" / "write.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_caller_that_is_alone_has_a_commit_of_its_own(store: Store, tmp_path: Path) -> None:
    before = commits(tmp_path / "tasks.db-wal")
    for _ in range(10):
        store.submit(new_task(CLOCK))
    assert commits(tmp_path / "tasks.db-wal") - before == 10


@pytest.mark.usefixtures("nobody_gives_way")
def test_sixteen_callers_do_not_pay_for_sixteen_commits(store: Store, tmp_path: Path) -> None:
    """The first one waits for the lock with what is its own; all the others wait for the first one."""
    come: list[int] = []

    def submit(number: int) -> None:
        new = new_task(CLOCK)
        come.append(number)
        store.submit(new)

    before = commits(tmp_path / "tasks.db-wal")
    with ThreadPoolExecutor(CALLERS) as threads:
        with writing_as_another_process(tmp_path):
            submitting = [threads.submit(submit, number) for number in range(CALLERS)]
            assert wait_until(lambda: len(come) == CALLERS)
        for caller in submitting:
            caller.result()
    assert commits(tmp_path / "tasks.db-wal") - before <= 2
    assert store.count_states() == {State.QUEUED: CALLERS}


def test_a_caller_that_is_refused_does_not_disturb_those_in_the_same_commit(store: Store) -> None:
    taken = store.submit(new_task(CLOCK, {"a": 1}, idempotency_key="k")).task.task_id

    def submit(number: int) -> str:
        if number % 3:
            return store.submit(new_task(CLOCK)).task.task_id
        with pytest.raises(IdempotencyConflict):
            store.submit(new_task(CLOCK, {"a": 2}, idempotency_key="k"))
        return taken

    with ThreadPoolExecutor(CALLERS) as threads:
        submitted = set(threads.map(submit, range(120)))
    assert len(submitted) == 81
    assert {store.get(task_id).task_id for task_id in submitted} == submitted


def test_a_caller_whose_statement_the_database_refuses_does_not_disturb_the_others(store: Store) -> None:
    def submit(number: int) -> str | None:
        if number % 3:
            return store.submit(new_task(CLOCK)).task.task_id
        with pytest.raises(StoreError):
            store.submit(new_task(CLOCK, queue=None))
        return None

    with ThreadPoolExecutor(CALLERS) as threads:
        submitted = {task_id for task_id in threads.map(submit, range(120)) if task_id}
    assert {store.get(task_id).task_id for task_id in submitted} == submitted
    assert len(submitted) == 80
