"""The engine `slurm`: each task is a job of Slurm, which starts `backburner run-task`."""

from __future__ import annotations

from collections.abc import Sequence

from ...config import Settings
from ..outside.queue import OutsideQueue, Secret


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> OutsideQueue:
    """The one queue for all of ours that Slurm has. Whether there is a Slurm shows with the first command."""
    from .queue import SlurmQueue

    return SlurmQueue(settings)
