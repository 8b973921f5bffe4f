"""The smallest queue outside that there can be: a folder with a file for each task that is to be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from backburner.core.task import Task
from backburner.engines.external import JobStatus
from backburner.errors import EngineError
from backburner.store.protocol import ExternalJob


class Spool:
    """Its jobs are files. While its folder is away, it takes nothing."""

    name = "celery"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def jobs(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        try:
            for task in tasks:
                (self.folder / task.task_id).touch()
        except OSError as error:
            raise EngineError(
                engine=self.name, reason=f"its folder is away; bring it back ({error})"
            ) from None
        return {task.task_id: f"file {task.task_id}" for task in tasks}

    def status(self, jobs: Sequence[ExternalJob]) -> Mapping[str, JobStatus]:
        there = set(self.jobs())
        gone = JobStatus("ended", "its file is gone")
        return {each.task_id: JobStatus("active") if each.task_id in there else gone for each in jobs}

    def cancel(self, jobs: Sequence[ExternalJob]) -> None:
        for each in jobs:
            (self.folder / each.task_id).unlink(missing_ok=True)

    def close(self) -> None: ...
