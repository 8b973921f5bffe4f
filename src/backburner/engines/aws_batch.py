"""Engine `aws-batch`: each task is a job of AWS Batch, whose container runs `backburner run-task`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from ..core.task import Resources, Task
from ..errors import EngineError
from ..settings import Settings
from ..settings.engines import BATCH_TABLES
from ..settings.reader import as_variables
from ..store.artifacts.aws import make_client, told
from ..store.protocol import ExternalJob
from .external import JobStatus, PartialSubmit, Secret
from .remote import TaskTokens

#: Memory of a container beside the tool's.
_OVERHEAD_MIB = 512
#: Time of a job beside the task's: to start, and to end.
_OVERHEAD_S = 900
#: Jobs write there unless their definition names another group.
_LOG_GROUP = "/aws/batch/job"
#: Batch kills a container 30 s after it told it to end.
_DRAIN_GRACE_S = 20.0
#: A job may wait this long for a computer, and run.
_TOKEN_S = 7 * 86_400.0
#: Settings that each job gets. They contain no secret, since everyone who may describe jobs can read them.
_JOB_SETTINGS = ("BACKBURNER_LIMITS__", "BACKBURNER_SUPERVISOR__")
#: The most jobs in one request for their status.
_BATCH = 100
_QUOTA = "its quota is used up; raise it in Service Quotas, or wait: refused tasks are submitted again later"
_ADVICE = {
    "ClientException": "see aws_batch.job_queue and aws_batch.job_definition",
    "TooManyRequestsException": _QUOTA,
    "ThrottlingException": _QUOTA,
    "LimitExceededException": _QUOTA,
    "ServiceQuotaExceededException": _QUOTA,
}


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> BatchQueue:
    return BatchQueue(settings, queues, secret)


class BatchQueue:
    """An ExternalQueue. Safe to use from one thread at a time."""

    name = "aws-batch"

    def __init__(self, settings: Settings, queues: Sequence[str], secret: Secret) -> None:
        """Raises EngineError for a queue of ours without a job queue or a job definition."""
        self._settings = ours = settings.aws_batch
        self._secret = secret
        # The environment of the process that submitted a task is not in a container.
        drain_s = min(_DRAIN_GRACE_S, settings.supervisor.drain_grace_s)
        supervisor = dataclasses.replace(settings.supervisor, drain_grace_s=drain_s, environment="own")
        variables = as_variables(settings.with_group(supervisor))
        self._variables = {name: text for name, text in variables.items() if name.startswith(_JOB_SETTINGS)}
        for table in BATCH_TABLES:
            for queue in queues:
                if not ours.of(table, queue):
                    raise self._error(f'queue {queue} has none; set aws_batch.{table} for it, or for "*"')

    def submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """Submit a job for each. A refused job stops those with the same resources, and no other."""
        jobs: dict[str, str] = {}
        refusals: dict[Resources, EngineError] = {}
        for task in tasks:
            if task.resources in refusals:
                continue
            try:
                with self._errors():
                    jobs[task.task_id] = self._client.submit_job(**self._job(task))["jobId"]
            except EngineError as error:
                refusals[task.resources] = error
                response = getattr(error.__cause__, "response", None) or {}
                if response.get("Error", {}).get("Code") != "ClientException":  # it refuses every job now
                    break
        if refusals:
            reasons = {
                task.task_id: str(refusals[task.resources]) for task in tasks if task.resources in refusals
            }
            raise PartialSubmit(jobs, list(refusals.values())[-1], reasons)
        return jobs

    def status(self, jobs: Sequence[ExternalJob]) -> Mapping[str, JobStatus]:
        tasks = {each.job: each.task_id for each in jobs if each.job}
        found: dict[str, JobStatus] = {}
        job_ids = list(tasks)
        for first in range(0, len(job_ids), _BATCH):
            with self._errors():
                for job in self._client.describe_jobs(jobs=job_ids[first : first + _BATCH])["jobs"]:
                    if job["jobId"] in tasks:
                        found[tasks[job["jobId"]]] = self._status(job)
        return found

    def cancel(self, jobs: Sequence[ExternalJob]) -> None:
        for each in jobs:
            if not each.job:
                continue  # if there is one, it finds its task over
            with self._errors():
                try:
                    self._client.terminate_job(jobId=each.job, reason=f"The task is {each.state}.")
                except ClientError as error:
                    if error.response["Error"]["Code"] != "ClientException":  # the job is gone
                        raise

    def close(self) -> None:
        if "_client" in vars(self):
            with contextlib.suppress(Exception):
                self._client.close()

    def _job(self, task: Task) -> dict[str, Any]:
        """Return the arguments of `SubmitJob` for a task."""
        ours, variables = self._settings, self._variables
        command = ["backburner", "run-task", task.task_id, "-t", ours.target or task.target]
        if ours.server:
            command += ["--server", ours.server]
            token = self._tokens.make(task.task_id, _TOKEN_S)
            variables = {**variables, "BACKBURNER_TASK_TOKEN": token}
        job = {
            "jobName": task.task_id,
            "jobQueue": ours.of("job_queue", task.queue),
            "jobDefinition": ours.of("job_definition", task.queue),
            "containerOverrides": {
                "command": command,
                "environment": [{"name": name, "value": value} for name, value in variables.items()],
                "resourceRequirements": _requirements(task.resources),
            },
            "retryStrategy": {"attempts": 1},  # the task's own policy decides about another
        }
        if task.resources.max_runtime_s is not None:
            limit_s = math.ceil(task.resources.max_runtime_s) + _OVERHEAD_S
            job["timeout"] = {"attemptDurationSeconds": limit_s}
        return job

    @cached_property
    def _tokens(self) -> TaskTokens:
        return TaskTokens(self._secret())

    def _status(self, job: Mapping[str, Any]) -> JobStatus:
        if job["status"] not in ("SUCCEEDED", "FAILED"):
            return JobStatus("active")
        container = job.get("container") or {}
        reasons = [job.get("statusReason"), container.get("reason")]
        if (code := container.get("exitCode")) is not None:
            reasons.append(f"exit code {code}")
        reason = "; ".join(str(each).rstrip(".") for each in reasons if each) or "no reason is given"
        text = f"job {job['jobId']} is {job['status']}: {reason}"
        if stream := container.get("logStreamName"):
            text += f". Its log is in CloudWatch: group {_LOG_GROUP}, stream {stream}"
        return JobStatus("ended", text)

    @cached_property
    def _client(self) -> Any:
        return make_client("batch")

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return told(self._error, _ADVICE)

    def _error(self, reason: str) -> EngineError:
        return EngineError(engine=self.name, reason=reason)


def _requirements(resources: Resources) -> list[dict[str, str]]:
    """Return the resources that a job asks for beyond its definition; CPUs are rounded up."""
    wanted = {}
    if resources.cpu is not None:
        wanted["VCPU"] = max(1, math.ceil(resources.cpu))
    if resources.memory_mb is not None:
        wanted["MEMORY"] = resources.memory_mb + _OVERHEAD_MIB
    return [{"type": kind, "value": str(value)} for kind, value in wanted.items()]
