"""A compute environment: it runs the commands of the jobs that Batch has, as containers of it would."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import services


class Compute:
    """Starts each job's command, as many at once as there are; those of terminated jobs are killed."""

    def __init__(self, batch: Any, environment: dict[str, str]) -> None:
        self._batch = batch
        # A container has `backburner` on its path.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**environment, "PATH": path}
        self.jobs: dict[str, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self._over.wait(0.05):
            self.look()

    def look(self) -> None:
        """Start what is new, and end what was terminated."""
        listed = self._batch.list_jobs(jobQueue="lab", jobStatus="SUBMITTED")["jobSummaryList"]
        for summary in listed:
            job_id = summary["jobId"]
            if job_id not in self.jobs and "statusReason" not in summary:
                (job,) = self._batch.describe_jobs(jobs=[job_id])["jobs"]
                environment = {**self._environment, "AWS_BATCH_JOB_ID": job_id}
                self.jobs[job_id] = started = subprocess.Popen(job["container"]["command"], env=environment)
                services.running.add(started.pid)
            elif "statusReason" in summary and (running := self.jobs.get(job_id)) is not None:
                running.terminate()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for job in self.jobs.values():
            job.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(20)
            job.kill()
            job.wait()
            services.running.discard(job.pid)

    @classmethod
    @contextlib.contextmanager
    def working(cls, batch: Any, environment: dict[str, str]) -> Iterator[Compute]:
        compute = cls(batch, environment)
        compute._thread.start()
        try:
            yield compute
        finally:
            compute.close()
