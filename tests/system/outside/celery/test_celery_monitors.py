"""Celery's monitors work on our workers."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from backburner.core.lifecycle import State
from backburner.engines.brokers.worker import settings_variable
from backburner.engines.celery import RING, make_celery
from tests.contracts.engine.base import eventually
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


def test_monitors_that_ask_see_messages_and_the_queues_of_workers(
    rabbit_server: RabbitServer, tmp_path: Path, run_directory: str
) -> None:
    app = broker_app("celery", rabbit_server.url, tmp_path)
    celery = make_celery(app.settings.broker, app.settings.queues_of("celery"))
    with contextlib.closing(celery), monitored(celery) as heard, working(app, ["one_by_one"]) as local:
        assert local.run("add", IN_LINE, a=1).state is State.SUCCEEDED

        def told() -> list[str]:
            return [each["type"] for each in heard if each["type"].startswith("task-")]

        assert told() == []
        eventually(lambda: bool(celery.control.enable_events(reply=True, timeout=1)))
        assert local.run("add", IN_LINE, a=2).state is State.SUCCEEDED
        # The first task's message may end after monitors have asked.
        eventually(lambda: told()[-3:] == ["task-received", "task-started", "task-succeeded"])
        assert [each["name"] for each in heard if each["type"] == "task-received"] == [RING]

        command = [sys.executable, "-m", "celery", "-A", "backburner.engines.celery.worker", "inspect"]
        settings = dataclasses.replace(app.settings, data_dir=str(app.data_dir))
        environment = {**os.environ, **settings_variable(settings)}

        def active_queues() -> str:
            return subprocess.run(
                [*command, "active_queues"], env=environment, capture_output=True, text=True, check=False
            ).stdout

        eventually(lambda: app.settings.broker.name_of("celery", "one_by_one") in active_queues())


@pytest.mark.whole
def test_an_engine_whose_library_is_not_there_says_how_to_get_it() -> None:
    for engine in ("celery", "dramatiq"):
        code = f"import sys; sys.modules['{engine}'] = None\n"
        code += f"from backburner.engines.external import load_engine; load_engine('{engine}')"
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        ).stderr
        assert f"pip install 'backburner[{engine}]'" in said
