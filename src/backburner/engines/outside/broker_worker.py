"""What a worker process of Dramatiq or Celery stands on: its app's settings, and the feeds of its queues."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from ...config import Settings
from ...errors import ConfigError
from ...log_lines import about
from ...target import load, parse, plain_arguments
from .feed import TaskFeed

log = logging.getLogger("backburner.worker")

#: How `backburner worker` gives the processes of Dramatiq and Celery its settings, as JSON.
SETTINGS_VARIABLE = "BACKBURNER_WORKER_SETTINGS"


def settings_variable(settings: Settings, data_dir: Path, target: str) -> dict[str, str]:
    """The environment by which `worker_settings` finds these, in a process that is started with it."""
    whole = dataclasses.replace(settings, data_dir=str(data_dir), target=target)
    return {SETTINGS_VARIABLE: whole.to_json()}


def worker_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of the app that this process works for: those it was given, or that its target has.

    Both `data_dir` and `target` are in them. Raises ConfigError and AppNotFound.
    """
    if given := environment.get(SETTINGS_VARIABLE):
        return Settings.from_json(given)
    if not (named := environment.get("BACKBURNER_TARGET")):
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


class Feeds:
    """The feeds of one worker process: each is made when the first task of its queue comes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._feeds: dict[str, TaskFeed] = {}
        self._one_at_a_time = threading.Lock()

    def run(self, queue: str, task_id: str) -> None:
        """See the next attempt of a task through, if it waits for a worker. Raises EngineError."""
        os.environ.pop(SETTINGS_VARIABLE, None)  # there may be passwords in it, which are no tool's affair
        with self._one_at_a_time:
            if queue not in self._feeds:
                settings = self._settings
                folder, target = Path(settings.data_dir), settings.target
                self._feeds[queue] = TaskFeed(settings, folder, queue, target=target)
            if not self._feeds[queue].run(task_id):
                log.info(
                    "%s does not wait for a worker here: its message is dropped",
                    task_id,
                    extra=about(task_id),
                )

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()
        self._feeds.clear()
