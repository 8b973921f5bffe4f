"""Worker process of Celery or Dramatiq: passes messages on to a supervisor in a child process."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn

from ...errors import ConfigError, EngineError
from ...settings import Settings
from ...tools.targets import load, parse, plain_arguments
from ..local.processes.launches import environment

#: Gives the processes of Dramatiq and Celery the settings of `backburner worker`, as JSON.
SETTINGS_VARIABLE = "BACKBURNER_WORKER_SETTINGS"


class SupervisorProcess:
    """The supervisor of a worker process. If it dies, the next ring starts it again.

    If the worker process is killed, the supervisor finishes the tasks that run, and ends.
    """

    def __init__(self, settings: Settings, engine: str) -> None:
        # It may contain passwords, which tools must not see.
        self._by_backburner = os.environ.pop(SETTINGS_VARIABLE, None) is not None
        self._settings = settings
        self._engine = engine
        self._config = ""
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._rings: dict[str, deque[Future[None]]] = defaultdict(deque)
        self._stopping = False

    def start(self, names: Collection[str], threads: int) -> int:
        """Start it for queues with these names at the broker; return how many these are.

        Of each queue so many tasks run at once as it has workers by the settings of `backburner worker`, or
        as the library's own command has threads.
        """
        settings, engine = self._settings, self._engine
        queues = [
            queue for queue in settings.queues_of(engine) if settings.broker.name_of(engine, queue) in names
        ]
        own = worker_slots(settings, engine) if self._by_backburner else {}
        slots = {queue: own.get(queue, threads) for queue in queues}
        self._config = json.dumps({"settings": settings.to_json(), "slots": slots}) + "\n"
        with self._lock:
            self._started()
        return len(slots)

    def ring(self, queue: str) -> None:
        """Have a queue's tasks claimed; return when that was tried with a free worker.

        Raises EngineError when the supervisor dies. The task is safe, and its message is sent again.
        """
        done: Future[None] = Future()
        with self._lock:
            if self._stopping:
                return
            child = self._started()
            self._rings[queue].append(done)
            assert child.stdin is not None, "it is a pipe"
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(f"{queue}\n")
                child.stdin.flush()
        done.result()

    def stop(self) -> None:
        """Claim no more. Running tasks have `supervisor.drain_grace_s` to finish."""
        with self._lock:
            self._stopping = True
            if self._child is not None:
                self._child.terminate()

    def close(self) -> None:
        """Stop, and return when no task runs."""
        self.stop()
        if (child := self._child) is not None:
            child.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "backburner.engines.brokers.supervisor"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # signals of a terminal are for the worker process alone
                env=environment(),
            )
            assert self._child.stdin is not None, "it is a pipe"
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.write(self._config)
                self._child.stdin.flush()
            threading.Thread(target=self._read, args=(self._child,), daemon=True).start()
        return self._child

    def _read(self, child: subprocess.Popen[str]) -> None:
        """Answer rings until the child ends."""
        assert child.stdout is not None, "it is a pipe"
        for line in child.stdout:
            with self._lock:
                done = self._rings[line.rstrip("\n")].popleft()
            done.set_result(None)
        code = child.wait()
        with self._lock:
            self._child = None
            left = [done for rings in self._rings.values() for done in rings]
            self._rings.clear()
        for done in left:
            if self._stopping:
                done.set_result(None)
            else:
                reason = f"the supervisor of the worker ended with code {code}; the worker's log says why"
                done.set_exception(EngineError(engine=self._engine, reason=reason))


def exec_worker(command: Sequence[str], settings: Settings, data_dir: Path, target: str) -> NoReturn:
    """Replace this process by a worker command of Celery or Dramatiq, for an app with these settings."""
    whole = dataclasses.replace(settings, data_dir=str(data_dir), target=target)
    arguments = [sys.executable, "-m", *command]
    os.execve(sys.executable, arguments, {**os.environ, **settings_variable(whole)})


def settings_variable(settings: Settings) -> dict[str, str]:
    return {SETTINGS_VARIABLE: settings.to_json()}


def worker_settings() -> Settings:
    """Return the settings of the app that this process works for, with `data_dir` and `target`.

    They come from `backburner worker`, or from the app that BACKBURNER_TARGET names. Raises ConfigError and
    AppNotFound.
    """
    if given := os.environ.get(SETTINGS_VARIABLE):
        return Settings.from_json(given)
    if not (named := os.environ.get("BACKBURNER_TARGET")):
        reason = "name the app whose tasks these workers are for: BACKBURNER_TARGET=/path/lab.py"
        raise ConfigError(setting="target", reason=reason)
    target, ours = parse(named), [*sys.argv]
    sys.argv[:] = plain_arguments(target)  # the app may read them, and ours are not meant for it
    try:
        app = load(target)
    finally:
        sys.argv[:] = ours
    found: Settings = app.settings
    return dataclasses.replace(found, store=app.store.url, data_dir=str(app.data_dir), target=target)


def worker_slots(settings: Settings, engine: str) -> dict[str, int]:
    """Return how many tasks of each queue run at once under `backburner worker`."""
    workers = {queue: settings.queues[queue].workers for queue in settings.queues_of(engine)}
    return {queue: count for queue, count in workers.items() if count}
