"""The engine `dramatiq`: Dramatiq's workers get the ids of tasks by Redis or RabbitMQ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..outside.broker_commands import needing, processes_of, run_side_by_side

if TYPE_CHECKING:
    from ...config import Settings
    from ..outside.queue import OutsideQueue, Secret


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> OutsideQueue:
    """The queue outside for these queues of ours. Raises EngineError where Dramatiq is not installed."""
    with needing("dramatiq"):
        from .queue import DramatiqQueue
    return DramatiqQueue(settings.dramatiq, queues)


def work(settings: Settings, data_dir: Path, target: str) -> None:
    """Become Dramatiq's own command, or one for each queue. Raises EngineError as `make_queue` does."""
    with needing("dramatiq"):
        import dramatiq as _  # noqa: F401
    from ..outside.broker_worker import settings_variable

    group = settings.dramatiq
    commands = [
        [
            *(sys.executable, "-m", "dramatiq", "backburner.engines.dramatiq.worker"),
            *("--queues", group.name_of(queue), "--threads", "1", "--processes", str(processes)),
            *("--worker-shutdown-timeout", str(int(settings.supervisor.drain_grace_s * 1000))),
        ]
        for queue, processes in processes_of(settings, group).items()
    ]
    run_side_by_side(commands, settings_variable(settings, data_dir, target))
