"""Commands of Slurm and their output. Each is called once for all jobs that it is about."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ...errors import EngineError

#: State of a job that Slurm has forgotten: it ended long ago, or the controller lost its state.
FORGOTTEN = "UNKNOWN"

#: The most jobs on one command line.
_BATCH = 500
#: A busy controller answers within seconds.
_TIMEOUT_S = 30.0
#: Words of Slurm's errors, and the setting to look at.
_ADVICE = {
    **dict.fromkeys(("partition", "account", "gres", "qos"), "slurm.arguments"),
    "node configuration": "the tool's cpu and memory, or slurm.arguments",
    "job array": "MaxArraySize in slurm.conf, which must be at least 1001",
}
#: Errors of scancel and sacct that are harmless.
_NO_SUCH_JOB = "invalid job id"
_NO_ACCOUNTING = "accounting storage is disabled"


@dataclass(frozen=True, slots=True)
class JobState:
    """State of a job, and the reason why it waits."""

    state: str
    reason: str = ""


class Commands:
    """Runs `sbatch`, `squeue`, `sacct` and `scancel`. Their errors are raised as EngineError."""

    def submit(self, options: Sequence[str], script: str) -> str:
        """Submit a batch script; return the number of its job."""
        output = self._run("sbatch", "--parsable", *options, script=script)
        return output.strip().splitlines()[-1].partition(";")[0]

    def jobs(self) -> dict[str, JobState]:
        """Return all jobs of this user that Slurm has in memory: also those that ended minutes ago."""
        output = self._run(
            *("squeue", f"--user={os.getuid()}", "--states=all", "--array", "--noheader"),
            "--format=%i|%T|%r",
        )
        rows = (line.strip().split("|", 2) for line in output.splitlines() if line.strip())
        return {job: JobState(state, "" if reason == "None" else reason) for job, state, reason in rows}

    def ended_jobs(self, jobs: Collection[str]) -> dict[str, JobState]:
        """Return how jobs ended, from the accounting database; empty where there is none."""
        found: dict[str, JobState] = {}
        for some in _batches(jobs):
            try:
                output = self._run(
                    *("sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State"),
                    f"--jobs={','.join(some)}",
                )
            except EngineError as error:
                if _NO_ACCOUNTING in str(error).lower():
                    return {}
                raise
            rows = (line.split("|", 1) for line in output.splitlines() if "|" in line)
            found |= {job: JobState(state.split()[0], state) for job, state in rows if state}
        return found

    def cancel(self, jobs: Collection[str]) -> None:
        """Cancel jobs; harmless for those that are over."""
        for some in _batches(jobs):
            try:
                self._run("scancel", *some)
            except EngineError as error:
                if _NO_SUCH_JOB not in str(error).lower():
                    raise

    def _run(self, command: str, *arguments: str, script: str | None = None) -> str:
        program = shutil.which(command)
        if program is None:
            reason = (
                f"there is no `{command}` here; run the server where jobs are submitted from, or add"
                " the folder of Slurm's commands to PATH"
            )
            raise EngineError(engine="slurm", reason=reason)
        # The variables of a job that this process may run in are no defaults for its jobs.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SLURM_") or name == "SLURM_CONF"
        }
        try:
            done = subprocess.run(
                [command, *arguments],
                executable=program,
                input=script,
                stdin=subprocess.DEVNULL if script is None else None,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=environment,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            reason = f"`{command}` did not answer within {_TIMEOUT_S:g} s"
            raise EngineError(engine="slurm", reason=reason) from None
        if done.returncode:
            raise EngineError(engine="slurm", reason=_reason(command, done.stderr or done.stdout))
        return done.stdout


def _reason(command: str, output: str) -> str:
    """Return a command's error on one line, with the setting to look at."""
    prefix = f"{command}: "
    lines = [line.removeprefix(prefix).removeprefix("error: ") for line in output.strip().splitlines()]
    text = "; ".join(dict.fromkeys(lines)) or f"`{command}` failed"
    advice = [setting for words, setting in _ADVICE.items() if words in text.lower()]
    return f"{text} (look at {advice[0]})" if command == "sbatch" and advice else text


def _batches(jobs: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(jobs)
    for start in range(0, len(ordered), _BATCH):
        yield ordered[start : start + _BATCH]
