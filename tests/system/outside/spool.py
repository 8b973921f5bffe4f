"""The smallest queue outside that there can be: a folder with a file for each task that is to be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from backburner.engines.outside.queue import Sighting
from backburner.errors import EngineError
from backburner.hand_out import HandOut
from backburner.task import Task


class Spool:
    """Its jobs are files. While its folder is away, it takes nothing."""

    name = "celery"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def jobs(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def hand_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        try:
            for task in tasks:
                (self.folder / task.task_id).touch()
        except OSError as error:
            raise EngineError(
                engine=self.name, reason=f"its folder is away; bring it back ({error})"
            ) from None
        return {task.task_id: f"file {task.task_id}" for task in tasks}

    def look(self, handed_out: Sequence[HandOut]) -> Mapping[str, Sighting]:
        there = set(self.jobs())
        gone = Sighting("ended", "its file is gone")
        return {each.task_id: Sighting("there") if each.task_id in there else gone for each in handed_out}

    def withdraw(self, handed_out: Sequence[HandOut]) -> None:
        for each in handed_out:
            (self.folder / each.task_id).unlink(missing_ok=True)

    def close(self) -> None: ...
