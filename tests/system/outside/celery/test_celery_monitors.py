"""Celery's own ways to look at its workers, and to call tasks off, work on ours."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from backburner.engines.celery.celery_app import make_celery
from backburner.engines.outside.broker_worker import settings_variable
from backburner.lifecycle import State
from backburner.testing.engine.base import eventually
from tests.services import RabbitServer
from tests.system.outside.broker_workers import broker_app, working

IN_LINE = {"queue": "one_by_one"}


@contextlib.contextmanager
def monitored(celery: Celery) -> Iterator[list[dict[str, Any]]]:
    """What a monitor of Celery's events hears meanwhile."""
    heard: list[dict[str, Any]] = []
    ready = threading.Event()
    with celery.connection_for_read() as connection:
        receiver = celery.events.Receiver(connection, handlers={"*": heard.append})
        vars(receiver)["on_consume_ready"] = lambda *_, **options: ready.set()
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False}, daemon=True)
        thread.start()
        try:
            assert ready.wait(30)
            yield heard
        finally:
            receiver.should_stop = True
            thread.join(10)


def test_monitors_see_our_tasks_by_their_ids_and_one_that_is_cancelled_is_revoked(
    rabbit_server: RabbitServer, tmp_path: Path, run_directory: str
) -> None:
    app = broker_app("celery", rabbit_server.url, tmp_path, celery={"events": True})
    celery = make_celery(app.settings.celery, app.settings.queues_of("celery"))
    with contextlib.closing(celery), monitored(celery) as heard, working(app, ["one_by_one"]) as local:

        def told(task_id: str) -> list[str]:
            return [each["type"] for each in heard if each.get("uuid", "").startswith(task_id)]

        first = local.submit("run_until", IN_LINE, folder=str(tmp_path))
        local.until_state(first, State.RUNNING)
        command = [sys.executable, "-m", "celery", "-A", "backburner.engines.celery.worker", "inspect"]
        environment = {**os.environ, **settings_variable(app.settings, app.data_dir, app.target)}

        def active() -> str:
            return subprocess.run(
                [*command, "active"], env=environment, capture_output=True, text=True, check=False
            ).stdout

        eventually(lambda: first in active())  # workers have a second to answer

        second = local.submit("add", IN_LINE, a=1)
        eventually(lambda: any(each.job for each in app.store.hand_outs("celery") if each.task_id == second))
        local.service.cancel(second)
        assert local.end(second).state is State.CANCELLED
        eventually(lambda: any(second in str(each) for each in _revoked(celery)))
        (tmp_path / "go").touch()
        assert local.end(first).state is State.SUCCEEDED
        eventually(lambda: "task-revoked" in told(second) and "task-succeeded" in told(first))
        by_worker = ["task-received", "task-started", "task-succeeded"]
        eventually(lambda: "task-sent" in told(first))  # who sends and who works tell of it each for himself
        assert [each for each in told(first) if each != "task-sent"] == by_worker
        assert told(first).count("task-sent") == 1
        assert "task-started" not in told(second)

        service, again = local.service, local.service.retry(second).task_id
        assert service.wait(again, 30).task.state is State.SUCCEEDED, "what was revoked may be run again"


@pytest.mark.whole
def test_workers_tell_monitors_nothing_until_one_asks(
    rabbit_server: RabbitServer, tmp_path: Path, run_directory: str
) -> None:
    app = broker_app("celery", rabbit_server.url, tmp_path)
    celery = make_celery(app.settings.celery, app.settings.queues_of("celery"))
    with contextlib.closing(celery), monitored(celery) as heard, working(app, ["one_by_one"]) as local:
        assert local.run("add", IN_LINE, a=1).state is State.SUCCEEDED
        assert not [each for each in heard if each["type"].startswith("task-")]
        eventually(lambda: bool(celery.control.enable_events(reply=True, timeout=1)))
        task_id = local.submit("add", IN_LINE, a=2)

        def ends() -> list[dict[str, Any]]:
            return [each for each in heard if each["type"] == "task-succeeded"]

        eventually(lambda: any(each["uuid"].startswith(task_id) for each in ends()))


def _revoked(celery: Celery) -> list[object]:
    return list((celery.control.inspect(timeout=0.5).revoked() or {}).values())


@pytest.mark.whole
def test_an_engine_whose_library_is_not_there_says_how_to_get_it(tmp_path: Path) -> None:
    for engine in ("celery", "dramatiq"):
        code = f"import sys; sys.modules['{engine}'] = None\n"
        code += f"from backburner import Backburner; from backburner.engines import {engine}\n"
        code += (
            f"{engine}.make_queue(Backburner('x', store='sqlite:///{tmp_path}/x.db').settings, ['io'], bytes)"
        )
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        ).stderr
        assert f"pip install 'backburner[{engine}]'" in said
