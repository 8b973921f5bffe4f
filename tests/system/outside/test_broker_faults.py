"""Dramatiq and Celery on real brokers: the order of tasks, and what is left of them when something breaks."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.engines.external import Dispatcher, ExternalQueue, load_engine
from backburner.errors import EngineError, QueueFull
from backburner.settings import Settings
from backburner.store import open_store
from backburner.testing import FakeClock
from tests.contracts.engine.base import eventually
from tests.integration.engine.local import Client, Local, running
from tests.services import RabbitServer, RedisServer, free_port
from tests.system.outside.broker_workers import broker_app, workers, working

ENGINES = ("dramatiq", "celery")
IN_LINE = {"queue": "one_by_one"}


@contextlib.contextmanager
def queue_of(app: Backburner) -> Iterator[ExternalQueue]:
    engine = app.settings.engine
    queue: ExternalQueue = load_engine(engine).make_queue(
        app.settings, app.settings.queues_of(engine), app.store.secret
    )
    with contextlib.closing(queue):
        yield queue


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("broker", ["redis_server", "rabbit_server"])
@pytest.mark.parametrize("engine", ENGINES)
def test_tasks_run_by_their_priority_and_once_however_often_they_are_sent(
    engine: str, broker: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    app = broker_app(engine, request.getfixturevalue(broker).url, tmp_path)
    with contextlib.closing(Client(app)) as client, queue_of(app) as queue:
        rounds = Dispatcher(app.store, queue, ["one_by_one"])
        by_id = {}
        for priority in (0, -1000, 5, -1, 0, 1000):
            options = {**IN_LINE, "priority": priority}
            task_id = client.submit("ledgered", options, kind="quick", ledger=str(tmp_path), seconds=0)
            by_id[task_id] = priority
            rounds.dispatch([task_id])
            queue.submit([app.store.get(task_id)])
        with workers(app, ["one_by_one"]):
            ended = [client.end(task_id) for task_id in by_id]
        assert {(task.state, task.attempt) for task in ended} == {(State.SUCCEEDED, 1)}
        begun = [line.split()[1] for line in (tmp_path / "ledger").read_text().splitlines()]
        assert [by_id[task_id] for task_id in begun] == [1000, 5, 0, 0, -1, -1000]


@pytest.mark.whole
@pytest.mark.parametrize("engine", ENGINES)
def test_a_broker_that_cannot_be_used_is_an_error_that_says_what_to_do(
    engine: str, rabbit_server: RabbitServer, tmp_path: Path
) -> None:
    missing = f"start it, or set {engine}.url"
    unknown = f"give {engine}.url a user and a password that it knows"
    cases = {
        f"redis://:secret@127.0.0.1:{free_port()}": missing,
        f"amqp://lab:secret@127.0.0.1:{free_port()}//": missing,
        f"amqp://lab:secret@127.0.0.1:{rabbit_server.port}//": unknown,
    }
    for url, advice in cases.items():
        app = broker_app(engine, url, tmp_path)
        with contextlib.closing(Client(app)) as client, queue_of(app) as queue:
            task = app.store.get(client.submit("add", a=1))
            with pytest.raises(EngineError) as refused:
                queue.submit([task])
            assert advice in str(refused.value)
            assert "secret" not in str(refused.value)


def test_a_full_queue_refuses_threads_and_event_loops_alike(tmp_path: Path, run_directory: str) -> None:
    queues = {"one_by_one": {"workers": 1, "max_length": 1}}
    app = broker_app("dramatiq", f"redis://127.0.0.1:{free_port()}", tmp_path, queues=queues)
    with running(app) as local:
        kept = local.submit("add", IN_LINE, a=1)
        with pytest.raises(QueueFull):
            local.submit("add", IN_LINE, a=2)
        with pytest.raises(QueueFull):
            asyncio.run(local.service.aio.submit("add", {"a": 3}, queue="one_by_one"))
        assert [task.task_id for task in local.service.list().tasks] == [kept]


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(
    ("engine", "broker"),
    [
        ("dramatiq", "redis_server"),
        ("celery", "rabbit_server"),
        pytest.param("dramatiq", "rabbit_server", marks=pytest.mark.whole),
        pytest.param("celery", "redis_server", marks=pytest.mark.whole),
    ],
)
def test_what_a_broker_has_forgotten_is_sent_again_after_seconds_also_when_more_has_come_since(
    engine: str, broker: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(broker)
    app = broker_app(engine, server.url, tmp_path)
    clock = FakeClock(int(time.time() * 1000))
    vars(app)["store"] = open_store(app.settings.store, clock=clock)
    with contextlib.closing(Client(app)) as client, queue_of(app) as queue:

        def seen() -> dict[str, str]:
            found = queue.status(app.store.hand_outs(engine))
            return {task_id: status.state for task_id, status in found.items()}

        rounds = Dispatcher(app.store, queue, ["one_by_one"])
        lost = [client.submit("add", IN_LINE, a=number) for number in range(3)]
        rounds.run_round()
        clock.advance(6)
        eventually(lambda: seen() == dict.fromkeys(lost, "active"))  # RabbitMQ counts in a while
        forget(server, app.settings)
        later = [client.submit("add", IN_LINE, a=number) for number in range(4)]
        rounds.dispatch(later)
        eventually(lambda: seen() == {**dict.fromkeys(lost, "lost"), **dict.fromkeys(later, "active")})
        rounds.run_round()
        eventually(lambda: seen() == dict.fromkeys([*lost, *later], "active"))
        with workers(app, ["one_by_one"]):
            ended = [client.end(task_id) for task_id in (*lost, *later)]
        assert {(task.state, task.attempt) for task in ended} == {(State.SUCCEEDED, 1)}


def forget(server: RedisServer | RabbitServer, settings: Settings) -> None:
    """Have a broker lose what waits in it: all of it, or the queue."""
    if isinstance(server, RedisServer):
        server.flush()
    else:
        name = settings.broker.name_of(settings.engine, "one_by_one")
        with contextlib.closing(pika.BlockingConnection(pika.URLParameters(server.url))) as connection:
            connection.channel().queue_delete(name)


@pytest.mark.whole
def test_rabbitmq_may_be_away_while_tasks_run_and_wait_and_new_ones_come(
    rabbit_server: RabbitServer, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        apps: list[Local] = []
        for engine in ENGINES:
            folder = tmp_path / engine
            folder.mkdir()
            made = broker_app(engine, rabbit_server.url, folder)
            apps.append(stack.enter_context(working(made, ["one_by_one"])))
        ids = [
            [app.submit("run_until", IN_LINE, folder=str(tmp_path)), app.submit("add", IN_LINE, a=1)]
            for app in apps
        ]
        for app, (first, _) in zip(apps, ids, strict=True):
            app.until_state(first, State.RUNNING)
        rabbit_server.stop()
        for app, own in zip(apps, ids, strict=True):
            own.append(app.submit("add", IN_LINE, a=2))
            status = app.until(own[-1], lambda task: task.waits_for is not None)
            assert status.task.state is State.QUEUED
            assert "cannot be reached now" in str(status.task.waits_for)
        rabbit_server.start()
        (tmp_path / "go").touch()
        for app, own in zip(apps, ids, strict=True):
            for task_id in own:
                task = app.end(task_id)
                assert (task.state, task.attempt) == (State.SUCCEEDED, 1), task.error
