"""The engine `celery`: Celery's workers get the ids of tasks by RabbitMQ or Redis."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..outside.broker_commands import needing, processes_of, run_side_by_side

if TYPE_CHECKING:
    from ...config import Settings
    from ..outside.queue import OutsideQueue, Secret


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> OutsideQueue:
    """The queue outside for these queues of ours. Raises EngineError where Celery is not installed."""
    with needing("celery"):
        from .queue import CeleryQueue
    return CeleryQueue(settings.celery, queues)


def work(settings: Settings, data_dir: Path, target: str) -> None:
    """Become Celery's own command, or one for each queue. Raises EngineError as `make_queue` does."""
    with needing("celery"):
        import celery as _  # noqa: F401
    from ..outside.broker_worker import settings_variable

    group = settings.celery
    commands = [
        [
            *(sys.executable, "-m", "celery", "-A", "backburner.engines.celery.worker", "worker"),
            *("--queues", group.name_of(queue), "--hostname", f"{queue}.{os.getpid()}@%h"),
            *("--concurrency", str(processes), "--loglevel", "INFO"),
        ]
        for queue, processes in processes_of(settings, group).items()
    ]
    run_side_by_side(commands, settings_variable(settings, data_dir, target))
