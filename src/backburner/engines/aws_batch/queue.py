"""Tasks as jobs of AWS Batch: submitted one by one, described a hundred at a time, terminated.

A job's container has `backburner run-task TASK_ID` as its command. It finds the store by its environment,
which the job definition gives it: a password in a command could be read by all who may look at jobs. Or it
comes in by a server's door, with a token for its task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ...aws_client import make_client, told
from ...config import Settings
from ...config.engines.aws_batch import BATCH_TABLES
from ...errors import EngineError
from ...hand_out import HandOut
from ...task import Resources, Task
from ..outside.queue import PartlyTaken, Secret, Sighting
from .job import Jobs

#: So many jobs are described at once, and no more.
_AT_ONCE = 100
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

    def __init__(self, settings: Settings, queues: Sequence[str], secret: Secret) -> None:
        """Raises EngineError for a queue of ours that has no job queue or no job definition there."""
        self._settings = settings.aws_batch
        self._jobs = Jobs(settings, secret)
        for table in BATCH_TABLES:
            for queue in queues:
                if not self._settings.of(table, queue):
                    raise self._error(f'queue {queue} has none; set aws_batch.{table} for it, or for "*"')

    def hand_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """A job for each. One that Batch refuses stops no other, but for those that ask for the same."""
        jobs: dict[str, str] = {}
        refusals: dict[Resources, EngineError] = {}
        for task in tasks:
            if task.resources in refusals:
                continue
            try:
                with self._errors():
                    jobs[task.task_id] = self._client.submit_job(**self._jobs.of(task))["jobId"]
            except EngineError as error:
                refusals[task.resources] = error
                if not _is_about_the_job(error):
                    break
        if refusals:
            reasons = {
                task.task_id: str(refusals[task.resources]) for task in tasks if task.resources in refusals
            }
            raise PartlyTaken(jobs, list(refusals.values())[-1], reasons)
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


def _is_about_the_job(error: EngineError) -> bool:
    """Whether Batch does not want this job, and not just now wants none."""
    answer = getattr(error.__cause__, "response", None) or {}  # nobody may have answered
    return bool(answer.get("Error", {}).get("Code") == "ClientException")
