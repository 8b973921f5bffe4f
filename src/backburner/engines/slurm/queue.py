"""Slurm as a queue outside: `sbatch` hands out, `squeue` and `sacct` say what became, `scancel` withdraws."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ...config import Settings
from ...errors import EngineError
from ...hand_out import HandOut
from ...task import Task
from ..outside.queue import PartlyTaken, Sighting
from .commands import FORGOTTEN, Commands, JobState
from .job import JobFolder, options_of

#: How a job is over. All other states are those of one that waits, runs, or will run again.
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT", FORGOTTEN),
}
#: Its processes are being ended; Slurm says only afterwards how it is over.
_ENDING = "COMPLETING"
#: What Slurm did not let go on, and would not the next time: the task's error, and what it says.
_NOT_LET_GO_ON = {
    "DEADLINE": ("job_timed_out", "was ended by Slurm at its deadline"),
    "OUT_OF_MEMORY": ("job_out_of_memory", "was ended by Slurm, since it had used up its memory"),
    "TIMEOUT": ("job_timed_out", "was ended by Slurm at its time limit"),
}
#: The cluster's own doing: neither the job nor its task is to blame, and another job may do.
_NOBODYS_FAULT = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"}
#: So much of what a job wrote is told: its last words.
_LAST_WORDS = 2000


class SlurmQueue:
    """All of our queues that Slurm has."""

    name = "slurm"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = JobFolder(Path(settings.data_dir))
        self._commands = Commands(settings.slurm)

    def hand_out(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """A job for each; tasks that ask for the same are one array. What Slurm refuses stops no other."""
        try:
            self._folder.prepare(self._settings)
            self._folder.prune()
        except OSError as error:
            reason = f"jobs cannot be told the settings, since the data folder is not writable: {error}"
            raise EngineError(engine=self.name, reason=reason) from error
        jobs: dict[str, str] = {}
        refusal: EngineError | None = None
        for alike in self._alike(tasks):
            try:
                jobs |= self._submit(alike)
            except EngineError as error:
                refusal = error
        if refusal is not None:
            raise PartlyTaken(jobs, refusal)
        return jobs

    def look(self, handed_out: Sequence[HandOut]) -> Mapping[str, Sighting]:
        named = {each.task_id: each.job for each in handed_out if each.job}
        if not named:
            return {}
        known = self._commands.jobs()
        missing = set(named.values()) - known.keys()
        if missing:
            known |= self._commands.ended_jobs(missing)
        forgotten = JobState(FORGOTTEN)
        return {task_id: self._sighting(job, known.get(job, forgotten)) for task_id, job in named.items()}

    def withdraw(self, handed_out: Sequence[HandOut]) -> None:
        """Cancel those that wait. One that runs hears through the store that its task is over, and leaves."""
        jobs = {each.job for each in handed_out if each.job}
        if not jobs:
            return
        known = self._commands.jobs()
        self._commands.cancel([job for job in jobs if job in known and known[job].state == "PENDING"])
        for job in jobs:
            with contextlib.suppress(OSError):
                self._folder.output(job).unlink()

    def close(self) -> None: ...

    def _alike(self, tasks: Sequence[Task]) -> Iterator[list[Task]]:
        """Tasks that can be one job or one array."""
        groups: dict[tuple[str, ...], list[Task]] = {}
        for task in tasks:
            groups.setdefault((task.target, *options_of(task, self._settings)), []).append(task)
        most = self._settings.slurm.max_array
        for alike in groups.values():
            for start in range(0, len(alike), most):
                yield alike[start : start + most]

    def _submit(self, tasks: Sequence[Task]) -> dict[str, str]:
        """Submit tasks that are alike; the job of each by its id."""
        array = len(tasks) > 1
        where = [f"--output={self._folder.output_pattern(array=array)}"]
        if array:
            where.append(f"--array=0-{len(tasks) - 1}")
        options = options_of(tasks[0], self._settings)
        task_ids = [task.task_id for task in tasks]
        script = self._folder.script(task_ids, tasks[0].target, self._settings)
        job = self._commands.submit([*where, *options], script)
        return {task_id: f"{job}_{index}" if array else job for index, task_id in enumerate(task_ids)}

    def _sighting(self, job: str, seen: JobState) -> Sighting:
        if seen.state == _ENDING:
            return Sighting("ending", f"Slurm job {job} is being ended")
        if seen.state == "CANCELLED":
            return Sighting("cancelled", f"Slurm job {job} was cancelled in Slurm{_by_whom(seen.reason)}.")
        if seen.state in _NOT_LET_GO_ON:
            code, said = _NOT_LET_GO_ON[seen.state]
            return Sighting("failed", f"Slurm job {job} {said}.", code, self._last_words(job))
        if seen.state not in _ENDED:
            why = f" ({seen.reason})" if seen.reason else ""
            return Sighting("there", f"Slurm job {job} is {seen.state}{why}")
        ended = f"Slurm job {job} ended as {seen.state}"
        if seen.state == FORGOTTEN:
            ended = f"Slurm does not know job {job} any more"
        state: Literal["unknown", "ended"] = "unknown" if seen.state in _NOBODYS_FAULT else "ended"
        return Sighting(state, ended, output=self._last_words(job))

    def _last_words(self, job: str) -> str:
        """The end of what a job wrote. Nothing of its task: that goes to the store as it comes."""
        with contextlib.suppress(OSError), self._folder.output(job).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS))
            return file.read().decode("utf-8", "replace").strip()
        return ""


def _by_whom(said: str) -> str:
    """The user who cancelled a job, where the accounting database has told: `CANCELLED by 1000`."""
    _, by, user = said.rpartition(" by ")
    with contextlib.suppress(KeyError, ValueError):
        user = pwd.getpwuid(int(user)).pw_name
    return f" by {user}" if by else ""
