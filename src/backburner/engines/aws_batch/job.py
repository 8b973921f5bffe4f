"""What a job is made of: its command, its variables, and what it asks of Batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ...config import Settings
from ...config.as_variables import as_variables
from ...task import Resources, Task
from ...worker_pass import Passes
from ..outside.queue import Secret

#: What a container needs beside the tool itself.
_OWN_MEMORY_MIB = 512
#: How much longer than its task a job may take: to start, and to end.
_OWN_TIME_S = 900
#: The settings that go with each job. No secret is among them: all who may look at jobs can read them.
_GIVEN = ("BACKBURNER_LIMITS__", "BACKBURNER_SUPERVISOR__")


class Jobs:
    """Makes the arguments of `SubmitJob` for tasks."""

    def __init__(self, settings: Settings, secret: Secret) -> None:
        """`secret` gives the store's; it is asked for when jobs need tokens, and may raise StoreError."""
        self._ours = settings.aws_batch
        self._secret = secret
        # What a submitter's process stood on is not in a container.
        supervisor = dataclasses.replace(
            settings.supervisor, drain_grace_s=self._ours.drain_grace_s, environment="own"
        )
        variables = as_variables(settings.with_group(supervisor))
        self._variables = {name: text for name, text in variables.items() if name.startswith(_GIVEN)}

    def of(self, task: Task) -> dict[str, Any]:
        job = {
            "jobName": task.task_id,
            "jobQueue": self._ours.of("job_queue", task.queue),
            "jobDefinition": self._ours.of("job_definition", task.queue),
            "containerOverrides": {
                "command": self._command(task),
                "environment": [
                    {"name": name, "value": value} for name, value in self._variables_of(task).items()
                ],
                "resourceRequirements": _requirements(task.resources),
            },
            "retryStrategy": {"attempts": 1},  # whether there is another try is the task's to say
        }
        if task.resources.max_runtime_s is not None:
            limit_s = math.ceil(task.resources.max_runtime_s) + _OWN_TIME_S
            job["timeout"] = {"attemptDurationSeconds": limit_s}
        return job

    def _command(self, task: Task) -> list[str]:
        command = ["backburner", "run-task", task.task_id, "-t", self._ours.target or task.target]
        return [*command, "--server", self._ours.server] if self._ours.server else command

    def _variables_of(self, task: Task) -> Mapping[str, str]:
        if not self._ours.server:
            return self._variables
        token = self._passes.made_for(task.task_id, self._ours.token_s)
        return {**self._variables, "BACKBURNER_TASK_TOKEN": token}

    @cached_property
    def _passes(self) -> Passes:
        return Passes(self._secret())


def _requirements(resources: Resources) -> list[dict[str, str]]:
    """What a job wants that its definition does not say: whole CPUs, and room for what runs the tool."""
    wanted = {}
    if resources.cpu is not None:
        wanted["VCPU"] = max(1, math.ceil(resources.cpu))
    if resources.memory_mb is not None:
        wanted["MEMORY"] = resources.memory_mb + _OWN_MEMORY_MIB
    return [{"type": kind, "value": str(value)} for kind, value in wanted.items()]
