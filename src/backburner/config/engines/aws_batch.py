"""The settings of the engine `aws-batch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...errors import ConfigError
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
    drain_grace_s: float = setting(
        20.0,
        "How long a task may go on whose job Batch ends (terminated there, a Spot instance taken away) before"
        " it is handed back; less than the 30 s after which its container is killed",
    )
    server: str = setting(
        "",
        "The server whose door jobs come in by (http.worker_door), instead of by the store: each gets a token"
        " for its task",
        example='"https://lab.example"',
    )
    token_s: float = setting(
        604_800.0, "How long such a token is good: while the job waits for a computer, and while it runs"
    )
    region: str = setting("", "The region (default: as AWS's own tools find it)")
    endpoint: str = setting("", "Batch's address, if it is not AWS's own for the region")

    def __post_init__(self) -> None:
        for name in BATCH_TABLES:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.server and not self.server.startswith(("http://", "https://")):
            reason = f"{self.server!r} is no address of a server; one begins with https:// or http://"
            raise ConfigError(setting="aws_batch.server", reason=reason)
        if self.token_s <= 0:
            raise ConfigError(setting="aws_batch.token_s", reason="it must be more than 0")

    def of(self, table: str, queue: str) -> str:
        """What one of the tables says for a queue; empty where it says nothing."""
        values: Mapping[str, str] = getattr(self, table)
        return values.get(queue) or values.get("*", "")
