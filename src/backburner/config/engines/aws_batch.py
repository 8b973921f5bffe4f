"""The settings of the engine `aws-batch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..groups import setting

#: The settings that are tables by the names of our queues; "*" is for all that are not named.
BATCH_TABLES = ("job_queue", "job_definition")


@dataclass(frozen=True, slots=True)
class AwsBatchSettings:
    """Which jobs the engine `aws-batch` submits, and where to; engines.md says what they need."""

    job_queue: Mapping[str, str] = setting(
        dict,
        "Batch's job queue, by name or ARN, for each of our queues; `*` for all that are not named",
        example='{"*": "lab", "gpu_small": "lab-gpu"}',
    )
    job_definition: Mapping[str, str] = setting(
        dict,
        "The job definition, by name or ARN, for each of our queues; `*` for all that are not named",
        example='{"*": "backburner-lab"}',
    )
    target: str = setting(
        "",
        "The app as the job's container finds it: lab.py or package.module:bb (default: as the task has it)",
    )
    log_group: str = setting("/aws/batch/job", "The log group in CloudWatch that jobs write to")
    region: str = setting("", "The region (default: as AWS's own tools find it)")
    endpoint: str = setting("", "Batch's address, if it is not AWS's own for the region")

    def __post_init__(self) -> None:
        for name in BATCH_TABLES:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
