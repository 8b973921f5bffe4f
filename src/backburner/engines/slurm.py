"""Engine `slurm`: each task is a Slurm job, which starts `backburner run-task`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..core.files import write_private
from ..core.task import Task
from ..errors import EngineError
from ..settings import Settings, without_password
from ..settings.reader import as_variables
from ..store.protocol import ExternalJob
from .external import JobStatus, PartialSubmit, Secret
from .local.processes.launches import environment

#: State of a job that Slurm has forgotten: it ended long ago, or the controller lost its state.
FORGOTTEN = "UNKNOWN"

#: The most jobs on one command line.
_IDS_OF_COMMAND = 500
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
#: States of a job that is over. In all others it waits, runs, or will run again.
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT", FORGOTTEN),
}
#: Slurm ended the job, and would end the next one too: the task's error, and its message.
_ENDED_BY_SLURM = {
    "DEADLINE": ("job_timed_out", "was ended by Slurm at its deadline"),
    "OUT_OF_MEMORY": ("job_out_of_memory", "was ended by Slurm, since it had used up its memory"),
    "TIMEOUT": ("job_timed_out", "was ended by Slurm at its time limit"),
}
#: The fault is the cluster's: the job is replaced, and does not count against its task.
_CLUSTER_FAULTS = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"}
#: The most tasks in one array job: MaxArraySize of slurm.conf is 1001 by default.
_MAX_ARRAY = 1000
#: What the supervisor of a job needs beside its task, and the time for its start and end.
_MEMORY_OVERHEAD_MB, _TIME_OVERHEAD_S = 256, 300.0
#: Less than KillWait of slurm.conf (30 s by default), after which Slurm kills the job.
_DRAIN_GRACE_S = 10.0
#: How much of a job's output is reported, from its end.
_OUTPUT_BYTES = 2000
#: How long output files are kept, and how often old ones are looked for.
_KEEP_OUTPUT_S, _PRUNE_S = 7 * 86400.0, 3600.0
#: Where a job's import path and the one that its tools see are.
_IMPORT_PATH = ("PYTHONPATH", "BACKBURNER_PYTHONPATH")
#: Script of a job or an array of jobs. By `exec`, Slurm's signals reach Backburner itself.
_SCRIPT = """\
#!/bin/sh
set -a
. {environment}
set +a
{setup}
set -- {task_ids}
shift "${{SLURM_ARRAY_TASK_ID:-0}}"
exec {command} run-task "$1" {options}
"""


def make_queue(settings: Settings, queues: Sequence[str], secret: Secret) -> SlurmQueue:
    """Return one external queue for all of ours. A missing Slurm shows with the first command."""
    return SlurmQueue(settings)


class SlurmQueue:
    """An ExternalQueue. Jobs read their settings from, and write their output to, a folder on all nodes."""

    name = "slurm"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(settings.data_dir) / "slurm"
        self._environment = self._folder / "environment.sh"
        self._pruned_at = 0.0
        self._commands = Commands()

    def submit(self, tasks: Sequence[Task]) -> Mapping[str, str]:
        """Submit a job for each, in arrays of tasks that ask for the same."""
        try:
            self._write_environment()
            self._prune()
        except OSError as error:
            reason = f"the data folder is not writable, and jobs read their settings there: {error}"
            raise EngineError(engine=self.name, reason=reason) from error
        jobs: dict[str, str] = {}
        refusal: EngineError | None = None
        for alike in self._grouped(tasks):
            try:
                jobs |= self._submit(alike)
            except EngineError as error:
                refusal = error
        if refusal is not None:
            raise PartialSubmit(jobs, refusal)
        return jobs

    def status(self, jobs: Sequence[ExternalJob]) -> Mapping[str, JobStatus]:
        named = {each.task_id: each.job for each in jobs if each.job}
        if not named:
            return {}
        known = self._commands.jobs()
        if missing := set(named.values()) - known.keys():
            known |= self._commands.ended_jobs(missing)
        forgotten = JobState(FORGOTTEN)
        return {task_id: self._status(job, known.get(job, forgotten)) for task_id, job in named.items()}

    def cancel(self, jobs: Sequence[ExternalJob]) -> None:
        """Cancel pending jobs. A running one learns from the store that its task has ended."""
        names = {each.job for each in jobs if each.job}
        if not names:
            return
        known = self._commands.jobs()
        self._commands.cancel([job for job in names if job in known and known[job].state == "PENDING"])
        for job in names:
            with contextlib.suppress(OSError):
                self._output(job).unlink()

    def close(self) -> None: ...

    def _grouped(self, tasks: Sequence[Task]) -> Iterator[list[Task]]:
        """Yield tasks that can be one job or one array."""
        groups: dict[tuple[str, ...], list[Task]] = {}
        for task in tasks:
            groups.setdefault((task.target, *job_options(task, self._settings)), []).append(task)
        for alike in groups.values():
            for start in range(0, len(alike), _MAX_ARRAY):
                yield alike[start : start + _MAX_ARRAY]

    def _submit(self, tasks: Sequence[Task]) -> dict[str, str]:
        array = len(tasks) > 1
        options = [f"--output={self._folder / ('%A_%a.out' if array else '%j.out')}"]
        if array:
            options.append(f"--array=0-{len(tasks) - 1}")
        options += job_options(tasks[0], self._settings)
        task_ids = [task.task_id for task in tasks]
        job = self._commands.submit(options, self._script(task_ids, tasks[0].target))
        return {task_id: f"{job}_{index}" if array else job for index, task_id in enumerate(task_ids)}

    def _script(self, task_ids: Sequence[str], target: str) -> str:
        settings = self._settings
        options = [f"--target={target}"] if target else []
        if without_password(settings.store) == settings.store:
            options.append(f"--store={settings.store}")
        return _SCRIPT.format(
            environment=shlex.quote(str(self._environment)),
            setup=settings.slurm.setup,
            task_ids=" ".join(task_ids),
            command=settings.slurm.command or shlex.join([sys.executable, "-P", "-m", "backburner.cli"]),
            options=shlex.join(options),
        )

    def _write_environment(self) -> None:
        """Write the settings for jobs, readable by their owner alone: they contain the store's password."""
        settings = self._settings
        drain_s = min(_DRAIN_GRACE_S, settings.supervisor.drain_grace_s)
        supervisor = dataclasses.replace(settings.supervisor, drain_grace_s=drain_s, environment="own")
        variables = as_variables(settings.with_group(supervisor))
        if not settings.slurm.command:
            ours = environment()
            variables |= {name: ours[name] for name in _IMPORT_PATH}
        text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
        if not self._environment.exists() or self._environment.read_text() != text:
            write_private(self._environment, text)

    def _prune(self) -> None:
        """Remove old output files."""
        now = time.time()
        if now - self._pruned_at < _PRUNE_S:
            return
        self._pruned_at = now
        for file in self._folder.glob("*.out"):
            if file.stat().st_mtime < now - _KEEP_OUTPUT_S:
                file.unlink(missing_ok=True)

    def _status(self, job: str, found: JobState) -> JobStatus:
        state, reason = found.state, found.reason
        if state == "COMPLETING":
            return JobStatus("ending", f"Slurm job {job} is being ended")
        if state == "CANCELLED":
            return JobStatus("cancelled", f"Slurm job {job} was cancelled in Slurm{_user(reason)}.")
        if state in _ENDED_BY_SLURM:
            code, text = _ENDED_BY_SLURM[state]
            return JobStatus("failed", f"Slurm job {job} {text}.", code, self._end_of_output(job))
        if state not in _ENDED:
            return JobStatus("active", f"Slurm job {job} is {state}" + (f" ({reason})" if reason else ""))
        text = f"Slurm job {job} ended as {state}"
        if state == FORGOTTEN:
            text = f"Slurm does not know job {job} any more"
        outcome: Literal["unknown", "ended"] = "unknown" if state in _CLUSTER_FAULTS else "ended"
        return JobStatus(outcome, text, output=self._end_of_output(job))

    def _output(self, job: str) -> Path:
        return self._folder / f"{job}.out"

    def _end_of_output(self, job: str) -> str:
        """Return the end of a job's output. A tool's own output goes to the store instead."""
        with contextlib.suppress(OSError), self._output(job).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
            return file.read().decode("utf-8", "replace").strip()
        return ""


def job_options(task: Task, settings: Settings) -> tuple[str, ...]:
    """Return the options of `sbatch` for a task. Tasks with the same options can be one array."""
    need = task.resources
    options = [f"--job-name={task.tool_name}", "--ntasks=1", "--open-mode=append"]
    if need.cpu is not None:
        options.append(f"--cpus-per-task={math.ceil(need.cpu)}")
    if need.memory_mb is not None:
        options.append(f"--mem={need.memory_mb + _MEMORY_OVERHEAD_MB}M")
    if need.max_runtime_s is not None:
        options.append(f"--time={math.ceil((need.max_runtime_s + _TIME_OVERHEAD_S) / 60)}")
    return (*options, *shlex.split(settings.slurm.arguments_of(task.queue)))


def _user(reason: str) -> str:
    """Return who cancelled a job, where the accounting database says so: `CANCELLED by 1000`."""
    _, by, user = reason.rpartition(" by ")
    with contextlib.suppress(KeyError, ValueError):
        user = pwd.getpwuid(int(user)).pw_name
    return f" by {user}" if by else ""


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
    for start in range(0, len(ordered), _IDS_OF_COMMAND):
        yield ordered[start : start + _IDS_OF_COMMAND]
