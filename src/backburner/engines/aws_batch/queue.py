"""Tasks as jobs of AWS Batch: submitted one by one, described a hundred at a time, terminated.

A job's container has `backburner run-task TASK_ID` as its command. It finds the store by its environment,
which the job definition gives it: a password in a command could be read by all who may look at jobs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ...aws_client import make_client, told
from ...config.engines.aws_batch import BATCH_TABLES, AwsBatchSettings
from ...errors import EngineError
from ...hand_out import HandOut
from ...task import Resources, Task
from ..outside.queue import Sighting

#: So many jobs are described at once, and no more.
_AT_ONCE = 100
#: What a container needs beside the tool itself.
_OWN_MEMORY_MIB = 512
#: How much longer than its task a job may take: to start, and to end.
_OWN_TIME_S = 900
_OVER = ("SUCCEEDED", "FAILED")
_QUOTA = (
    "its quota is used up; raise it in Service Quotas, or wait: what it does not take is handed out later"
)
_ADVICE = {
    "ClientException": "see aws_batch.job_queue and aws_batch.job_definition",
    "TooManyRequestsException": _QUOTA,
    "ThrottlingException": _QUOTA,
    "LimitExceededException": _QUOTA,
    "ServiceQuotaExceededException": _QUOTA,
}


class BatchQueue:
    """An OutsideQueue. Safe to use from one thread at a time."""

    name = "aws-batch"

    def __init__(self, settings: AwsBatchSettings, queues: Sequence[str]) -> None:
        """Raises EngineError for a queue of ours that has no job queue or no job definition there."""
        self._settings = settings
        for table in BATCH_TABLES:
            for queue in queues:
                if not _named(getattr(settings, table), queue):
                    raise self._error(f'queue {queue} has none; set aws_batch.{table} for it, or for "*"')

    def hand_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """Of what is not taken after some were, nothing is known here: it is sent again after a while."""
        jobs: dict[str, str] = {}
        for task in tasks:
            try:
                with self._errors():
                    jobs[task.task_id] = self._client.submit_job(**self._job_of(task))["jobId"]
            except EngineError:
                if not jobs:
                    raise
                break
        return jobs

    def look(self, handed_out: Sequence[HandOut]) -> Mapping[str, Sighting]:
        tasks = {each.job: each.task_id for each in handed_out if each.job}
        found: dict[str, Sighting] = {}
        job_ids = list(tasks)
        for first in range(0, len(job_ids), _AT_ONCE):
            with self._errors():
                for job in self._client.describe_jobs(jobs=job_ids[first : first + _AT_ONCE])["jobs"]:
                    if job["jobId"] in tasks:
                        found[tasks[job["jobId"]]] = self._sighting(job)
        return found

    def withdraw(self, handed_out: Sequence[HandOut]) -> None:
        from botocore.exceptions import ClientError

        for each in handed_out:
            if not each.job:
                continue  # if it is there, it finds nothing to do and ends
            with self._errors():
                try:
                    self._client.terminate_job(jobId=each.job, reason=f"The task is {each.state}.")
                except ClientError as error:
                    if error.response["Error"]["Code"] != "ClientException":  # such is one that is gone
                        raise

    def close(self) -> None:
        if "_client" in vars(self):
            with contextlib.suppress(Exception):
                self._client.close()

    # -- jobs

    def _job_of(self, task: Task) -> dict[str, Any]:
        settings, resources = self._settings, task.resources
        target = settings.target or task.target
        job = {
            "jobName": task.task_id,
            "jobQueue": _named(settings.job_queue, task.queue),
            "jobDefinition": _named(settings.job_definition, task.queue),
            "containerOverrides": {
                "command": ["backburner", "run-task", task.task_id, "-t", target],
                "resourceRequirements": _requirements(resources),
            },
            "retryStrategy": {"attempts": 1},  # whether there is another try is the task's to say
        }
        if resources.max_runtime_s is not None:
            job["timeout"] = {"attemptDurationSeconds": math.ceil(resources.max_runtime_s) + _OWN_TIME_S}
        return job

    def _sighting(self, job: Mapping[str, Any]) -> Sighting:
        if job["status"] not in _OVER:
            return Sighting("there")
        container = job.get("container") or {}
        reasons = [job.get("statusReason"), container.get("reason")]
        if (code := container.get("exitCode")) is not None:
            reasons.append(f"exit code {code}")
        said = "; ".join(str(reason).rstrip(".") for reason in reasons if reason) or "no reason is given"
        log = container.get("logStreamName")
        where = f"its log is in CloudWatch: group {self._settings.log_group}, stream {log}" if log else ""
        what = f"job {job['jobId']} is {job['status']}: {said}"
        return Sighting("ended", ". ".join(filter(None, [what, where])))

    # -- the client

    @cached_property
    def _client(self) -> Any:
        return make_client("batch", self._settings.endpoint, self._settings.region)

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return told(self._error, _ADVICE)

    def _error(self, reason: str) -> EngineError:
        return EngineError(engine=self.name, reason=reason)


def _named(table: Mapping[str, str], queue: str) -> str:
    return table.get(queue) or table.get("*", "")


def _requirements(resources: Resources) -> list[dict[str, str]]:
    """What a job wants that its definition does not say: whole CPUs, and room for what runs the tool."""
    wanted = {}
    if resources.cpu is not None:
        wanted["VCPU"] = max(1, math.ceil(resources.cpu))
    if resources.memory_mb is not None:
        wanted["MEMORY"] = resources.memory_mb + _OWN_MEMORY_MIB
    return [{"type": kind, "value": str(value)} for kind, value in wanted.items()]
