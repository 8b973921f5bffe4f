"""Apps whose tasks go through a message broker, and the worker processes of Dramatiq or Celery for them."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from backburner import Backburner
from backburner.settings import Settings
from tests import services
from tests.contracts.engine_tools import contract_app
from tests.integration.engine.local import Local, kill, running
from tests.ledger import family, power_cut

QUEUES = ("cpu_standard", "one_by_one")

#: As `backburner worker TARGET --engine NAME` does, with the settings of an app that is made in a test.
_WORK = """
import sys
from pathlib import Path
from backburner.settings import Settings
from backburner.engines.external import load_engine

engine, data_dir, target = sys.argv[1:]
load_engine(engine).work(Settings.from_json(sys.stdin.read()), Path(data_dir), target)
"""


def broker_app(engine: str, url: str, folder: Path, **settings: Any) -> Backburner:
    """An app with the contract's tools on this engine, with queues of its own at the broker."""
    given = {"keeper_interval_s": 0.2, **settings.pop("supervisor", {})}
    broker = {"url": url, "namespace": f"test_{secrets.token_hex(4)}"}
    made = {"store": f"sqlite:///{folder}/tasks.db", "broker": broker, **settings}
    return contract_app(engine=engine, supervisor=given, **made)


@contextlib.contextmanager
def workers(app: Backburner, queues: Sequence[str] = QUEUES) -> Iterator[psutil.Process]:
    """The app's workers of these queues, by the engine's own commands; they are gone afterwards."""
    own = {
        name: dataclasses.replace(each, workers=each.workers if name in queues else 0)
        for name, each in app.settings.queues.items()
    }
    settings: Settings = dataclasses.replace(app.settings, queues=own, store=app.store.url)
    process = subprocess.Popen(
        [sys.executable, "-c", _WORK, settings.engine, str(app.data_dir), app.target],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    services.running.add(process.pid)
    try:
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(settings.to_json())
        yield psutil.Process(process.pid)
    finally:
        _end(process)


class WorkerHost:
    """A host with the workers of an app, which may lose its power and be started again."""

    def __init__(self, app: Backburner, queues: Sequence[str] = QUEUES) -> None:
        self._app = app
        self._queues = queues
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        self._parent = self._running.enter_context(workers(self._app, self._queues))

    def kill_workers(self) -> None:
        """Kill them alone: the supervisors under them bring to its end what they have, and leave."""
        power_cut([process for process in family(self._parent) if not _is_of_supervisor(process)])
        self.close()

    def power_cut(self) -> None:
        power_cut(family(self._parent))
        self.close()

    def close(self) -> None:
        self._running.close()


def _is_of_supervisor(process: psutil.Process) -> bool:
    """Whether it is, or stands under, the supervisor of a worker process."""
    with contextlib.suppress(psutil.Error):
        return any(
            "backburner.engines.brokers.supervisor" in each.cmdline()
            for each in [process, *process.parents()]
        )
    return False


def _end(process: subprocess.Popen[str]) -> None:
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)  # Celery sometimes waits for half a minute for what it has heard of already
    kill(*family)
    process.kill()
    process.wait()
    services.running.discard(process.pid)


@contextlib.contextmanager
def working(app: Backburner, queues: Sequence[str] = QUEUES) -> Iterator[Local]:
    """The app, started, with its workers; afterwards its supervisor and they are gone."""
    with running(app, shared=True) as local, workers(app, queues):
        yield local
