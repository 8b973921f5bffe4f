"""Where no socket can be made, SQLite's watches look now and then, and hear of everything all the same."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner.core.times import SystemClock
from backburner.store import open_store
from backburner.store.protocol import ANYTHING, Store, Watch
from tests.contracts.store.base import new_task

CLOCK = SystemClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/tasks.db")
    wake = tmp_path / "tasks.db.d" / "wake"
    shutil.rmtree(wake)
    wake.touch()  # so that the folder cannot be made again
    yield store
    store.close()


@pytest.fixture
def watch(store: Store) -> Iterator[Watch]:
    watch = store.watch()
    yield watch
    watch.close()


def test_a_change_by_any_connection_is_heard_of(store: Store, watch: Watch, tmp_path: Path) -> None:
    store.submit(new_task(CLOCK))
    assert watch.wait(20) == {ANYTHING}
    other = open_store(f"sqlite:///{tmp_path}/tasks.db")
    try:
        other.submit(new_task(CLOCK))
    finally:
        other.close()
    assert watch.wait(20) == {ANYTHING}


def test_without_a_change_nothing_is_heard(watch: Watch) -> None:
    assert watch.wait(0.5) == set()
