"""The commands of Slurm that we use, and what they say. Each is called once for all jobs that it is about."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ...config.engines.slurm import SlurmSettings
from ...errors import EngineError

#: What is told of a job that Slurm has forgotten: it was too long ago, or its controller lost its state.
FORGOTTEN = "UNKNOWN"

#: So many jobs are named on one command line.
_AT_ONCE = 500
#: What is wrong, by words of Slurm, and which setting puts it right.
_ADVICE = {
    "partition": "slurm.partition",
    "account": "slurm.account",
    "gres": "slurm.gres",
    "qos": "slurm.arguments",
    "node configuration": "the tool's cpu and memory, slurm.partition or slurm.gres",
    "job array": "slurm.max_array",
}
#: What is no trouble, in the words of scancel and sacct.
_NO_SUCH_JOB = "invalid job id"
_NO_ACCOUNTING = "accounting storage is disabled"


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as Slurm tells of it. `reason` says why one waits."""

    state: str
    reason: str = ""


class Commands:
    """Runs them. All raise EngineError where Slurm does not do it, in its own words."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings

    def submit(self, options: Sequence[str], script: str) -> str:
        """Submit a batch script, and give the number of its job."""
        said = self._run("sbatch", "--parsable", *options, script=script)
        return said.strip().splitlines()[-1].partition(";")[0]

    def jobs(self) -> dict[str, JobState]:
        """All jobs of this user that Slurm has in its memory: also those that ended minutes ago."""
        said = self._run(
            *("squeue", f"--user={os.getuid()}", "--states=all", "--array", "--noheader"),
            "--format=%i|%T|%r",
        )
        rows = (line.strip().split("|", 2) for line in said.splitlines() if line.strip())
        return {job: JobState(state, "" if reason == "None" else reason) for job, state, reason in rows}

    def ended_jobs(self, jobs: Collection[str]) -> dict[str, JobState]:
        """How these ended, by the accounting database; empty where there is none."""
        found: dict[str, JobState] = {}
        for some in _portions(jobs):
            try:
                said = self._run(
                    *("sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State"),
                    f"--jobs={','.join(some)}",
                )
            except EngineError as error:
                if _says(error, _NO_ACCOUNTING):
                    return {}
                raise
            rows = (line.split("|", 1) for line in said.splitlines() if "|" in line)
            found |= {job: JobState(state.split()[0], state) for job, state in rows if state}
        return found

    def cancel(self, jobs: Collection[str]) -> None:
        """Cancel jobs; harmless for those that are over."""
        for some in _portions(jobs):
            try:
                self._run("scancel", *some)
            except EngineError as error:
                if not _says(error, _NO_SUCH_JOB):
                    raise

    def _run(self, command: str, *arguments: str, script: str | None = None) -> str:
        program = shutil.which(command, path=self._settings.bin_dir or None)
        if program is None:
            reason = (
                f"there is no `{command}` here; run the server where jobs are submitted from, or name the"
                " folder of Slurm's commands in slurm.bin_dir"
            )
            raise EngineError(engine="slurm", reason=reason)
        try:
            done = subprocess.run(
                [command, *arguments],
                executable=program,
                input=script,
                stdin=subprocess.DEVNULL if script is None else None,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=_outside_of_jobs(),
                timeout=self._settings.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reason = f"`{command}` did not answer within {self._settings.timeout_s:g} s"
            raise EngineError(engine="slurm", reason=reason) from None
        if done.returncode:
            raise EngineError(engine="slurm", reason=_in_a_line(command, done.stderr or done.stdout))
        return done.stdout


def _says(error: EngineError, words: str) -> bool:
    return words in str(error).lower()


def _outside_of_jobs() -> dict[str, str]:
    """The environment for a command; what a job that we may be in ourselves has been given is no default."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }


def _in_a_line(command: str, said: str) -> str:
    """What a command complained of, with the setting that may put it right."""
    prefix = f"{command}: "
    lines = [line.removeprefix(prefix).removeprefix("error: ") for line in said.strip().splitlines()]
    text = "; ".join(dict.fromkeys(lines)) or f"`{command}` failed"
    advice = [setting for words, setting in _ADVICE.items() if words in text.lower()]
    return f"{text} (look at {advice[0]})" if command == "sbatch" and advice else text


def _portions(jobs: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(jobs)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]
