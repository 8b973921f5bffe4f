"""What is handed out to a queue outside, and what becomes of it: a real store, and real runners."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.engines.brokers.worker import SupervisorProcess
from backburner.engines.external import Dispatcher
from backburner.store import open_store
from backburner.testing import FakeClock
from tests.contracts.engine_tools import contract_app
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
def rounds(app: Backburner, spool: Spool) -> Dispatcher:
    return Dispatcher(app.store, spool, [QUEUE])


def test_a_ring_runs_what_is_ready_once_and_is_done_where_nothing_is(
    app: Backburner, client: Client, tmp_path: Path
) -> None:
    settings = dataclasses.replace(app.settings, data_dir=str(app.data_dir))
    with contextlib.closing(SupervisorProcess(settings, "celery")) as supervisor:
        supervisor.start([settings.broker.name_of("celery", QUEUE)], 1)
        supervisor.ring(QUEUE)
        once, never = client.submit("add", a=1, b=2), client.submit("add", a=2, b=2)
        client.service.cancel(never)
        for _ in range(3):
            supervisor.ring(QUEUE)
        assert client.end(once).result == {"sum": 3}
    assert client.trail(once) == ["submit", "claim", "start", "succeed"]
    assert client.trail(never) == ["submit", "cancel"]


def test_a_supervisor_without_its_worker_process_finishes_its_task_and_claims_no_more(
    app: Backburner, client: Client, tmp_path: Path
) -> None:
    settings = dataclasses.replace(app.settings, data_dir=str(app.data_dir))
    supervisor = SupervisorProcess(settings, "celery")
    supervisor.start([settings.broker.name_of("celery", QUEUE)], 1)
    first, second = client.submit("run_until", folder=str(tmp_path)), client.submit("add", a=1)
    supervisor.ring(QUEUE)
    client.until_state(first, State.RUNNING)
    child = supervisor._child
    assert child is not None
    assert child.stdin is not None
    child.stdin.close()
    (tmp_path / "go").touch()
    assert child.wait(30) == 0
    assert client.end(first).state is State.SUCCEEDED
    assert client.service.status(second).task.state is State.QUEUED


def test_a_queue_that_is_away_leaves_its_tasks_waiting_and_they_say_why(
    client: Client, spool: Spool, rounds: Dispatcher, clock: FakeClock
) -> None:
    spool.folder.rmdir()
    task_id = client.submit("add", a=1, b=2)
    rounds.run_round()
    assert "bring it back" in str(client.service.status(task_id).task.waits_for)
    spool.folder.mkdir()
    clock.advance(3)
    rounds.run_round()
    assert spool.jobs() == [task_id]
    assert client.service.status(task_id).task.waits_for is None


def test_a_job_that_is_gone_is_replaced_and_after_a_few_the_task_fails_and_says_so(
    client: Client, spool: Spool, rounds: Dispatcher, clock: FakeClock
) -> None:
    task_id = client.submit("add", a=1, b=2)
    for _ in range(3):
        rounds.run_round()
        assert spool.jobs() == [task_id]
        (spool.folder / task_id).unlink()
        clock.advance(6)
        rounds.run_round()
    task = client.service.status(task_id).task
    assert (task.state, spool.jobs()) == (State.FAILED, [])
    assert task.error is not None
    assert (task.error.type, "its file is gone" in task.error.message) == ("job_ended", True)
    rounds.run_round()
    assert client.store.hand_outs("celery") == []


def test_the_job_of_a_cancelled_task_is_withdrawn(client: Client, spool: Spool, rounds: Dispatcher) -> None:
    task_id = client.submit("add", a=1, b=2)
    rounds.run_round()
    client.service.cancel(task_id)
    rounds.run_round()
    assert (spool.jobs(), client.store.hand_outs("celery")) == ([], [])
