"""What is handed out to a queue outside, and what becomes of it: a real store, and real runners."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner import Backburner
from backburner.engines.outside.feed import TaskFeed
from backburner.engines.outside.rounds import Rounds
from backburner.lifecycle import State
from backburner.stores import open_store
from backburner.testing import FakeClock, contract_app
from tests.integration.engine.local import Client
from tests.system.outside.spool import Spool

QUEUE = "cpu_standard"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(tmp_path: Path, clock: FakeClock) -> Iterator[Backburner]:
    app = contract_app(store=f"sqlite:///{tmp_path}/tasks.db", queues={QUEUE: {"engine": "celery"}})
    vars(app)["store"] = open_store(app.settings.store, clock=clock)
    with contextlib.closing(app):
        yield app


@pytest.fixture
def client(app: Backburner) -> Iterator[Client]:
    with contextlib.closing(Client(app)) as client:
        yield client


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    (tmp_path / "spool").mkdir()
    return Spool(tmp_path / "spool")


@pytest.fixture
def rounds(app: Backburner, spool: Spool) -> Rounds:
    return Rounds(app.store, spool, [QUEUE])


def test_a_task_runs_once_through_a_feed_however_often_it_is_named(
    app: Backburner, client: Client, tmp_path: Path
) -> None:
    once, never = client.submit("add", a=1, b=2), client.submit("add", a=2, b=2)
    client.service.cancel(never)
    with contextlib.closing(TaskFeed(app.settings, app.data_dir, QUEUE)) as feed:
        assert [feed.run(name) for name in (once, once, never, "tsk_nobody")] == [True, False, False, False]
    assert client.end(once).result == {"sum": 3}
    assert client.trail(once) == ["submit", "claim", "start", "succeed"]


def test_a_queue_that_is_away_leaves_its_tasks_waiting_and_they_say_why(
    client: Client, spool: Spool, rounds: Rounds, clock: FakeClock
) -> None:
    spool.folder.rmdir()
    task_id = client.submit("add", a=1, b=2)
    rounds.round()
    assert "bring it back" in str(client.service.status(task_id).task.waits_for)
    spool.folder.mkdir()
    clock.advance(3)
    rounds.round()
    assert spool.jobs() == [task_id]
    assert client.service.status(task_id).task.waits_for is None


def test_a_job_that_is_gone_is_replaced_and_after_a_few_the_task_fails_and_says_so(
    client: Client, spool: Spool, rounds: Rounds, clock: FakeClock
) -> None:
    task_id = client.submit("add", a=1, b=2)
    for _ in range(3):
        rounds.round()
        assert spool.jobs() == [task_id]
        (spool.folder / task_id).unlink()
        clock.advance(6)
        rounds.round()
    task = client.service.status(task_id).task
    assert (task.state, spool.jobs()) == (State.FAILED, [])
    assert task.error is not None
    assert (task.error.type, "its file is gone" in task.error.message) == ("job_ended", True)
    rounds.round()
    assert client.store.hand_outs("celery") == []


def test_the_job_of_a_cancelled_task_is_withdrawn(client: Client, spool: Spool, rounds: Rounds) -> None:
    task_id = client.submit("add", a=1, b=2)
    rounds.round()
    client.service.cancel(task_id)
    rounds.round()
    assert (spool.jobs(), client.store.hand_outs("celery")) == ([], [])
