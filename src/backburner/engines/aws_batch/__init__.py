"""The engine `aws-batch`: each task is a job of AWS Batch, whose container runs `backburner run-task`."""

from __future__ import annotations

from collections.abc import Sequence

from ...config import Settings
from ...errors import EngineError
from ..outside.queue import OutsideQueue, Secret


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> OutsideQueue:
    """The jobs of these queues. Raises EngineError without boto3, and for queues without a job queue."""
    try:
        import botocore  # noqa: F401
    except ImportError:
        reason = "it needs boto3: pip install 'backburner[aws]'"
        raise EngineError(engine="aws-batch", reason=reason) from None
    from .queue import BatchQueue

    return BatchQueue(settings, queues, secret)
