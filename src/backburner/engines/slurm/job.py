"""What a job is made of: the options of `sbatch` for a task, the script, and the settings that it reads."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...config import Settings, without_password
from ...config.as_variables import as_variables
from ...json_file import write_private
from ...task import Task
from ..local.import_path import environment

#: Where a job's import path and the one that its tools see are.
_IMPORT_PATH = ("PYTHONPATH", "BACKBURNER_PYTHONPATH")
#: How long what a job wrote is kept, and how often it is looked for.
_KEPT_S, _LOOK_S = 7 * 86400.0, 3600.0
#: The script of one job, or of an array of them. By `exec`, the signals of Slurm reach Backburner itself.
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


def options_of(task: Task, settings: Settings) -> tuple[str, ...]:
    """What a task asks of Slurm. Tasks that ask for the same can be one array."""
    ours, need = settings.slurm, task.resources
    options = [f"--job-name={task.tool_name}", "--ntasks=1", "--open-mode=append"]
    if need.cpu is not None:
        options.append(f"--cpus-per-task={math.ceil(need.cpu)}")
    if need.memory_mb is not None:
        options.append(f"--mem={need.memory_mb + ours.memory_overhead_mb}M")
    if need.max_runtime_s is not None:
        options.append(f"--time={math.ceil((need.max_runtime_s + ours.time_overhead_s) / 60)}")
    for name in ("partition", "account", "gres"):
        if value := ours.of(name, task.queue):
            options.append(f"--{name}={value}")
    return (*options, *shlex.split(ours.of("arguments", task.queue)))


class JobFolder:
    """`slurm/` in the data folder, which all nodes must have: what jobs read, and what they wrote."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "slurm"
        self.environment = self._folder / "environment.sh"
        self._looked_at = 0.0

    def prepare(self, settings: Settings) -> None:
        """Have the settings there for jobs to read: for their owner alone, since the store's password is."""
        supervisor = dataclasses.replace(
            settings.supervisor, drain_grace_s=settings.slurm.drain_grace_s, environment="own"
        )
        variables = as_variables(settings.with_group(supervisor))
        if not settings.slurm.command:
            ours = environment()
            variables |= {name: ours[name] for name in _IMPORT_PATH}
        text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
        if not self.environment.exists() or self.environment.read_text() != text:
            write_private(self.environment, text)

    def prune(self) -> None:
        """Now and then, remove what jobs wrote long ago. Raises OSError."""
        now = time.time()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        for file in self._folder.glob("*.out"):
            if file.stat().st_mtime < now - _KEPT_S:
                file.unlink(missing_ok=True)

    def output_pattern(self, *, array: bool) -> str:
        """Where Slurm puts what a job writes: in a file that is named as the job is."""
        return str(self._folder / ("%A_%a.out" if array else "%j.out"))

    def output(self, job: str) -> Path:
        return self._folder / f"{job}.out"

    def script(self, task_ids: Sequence[str], target: str, settings: Settings) -> str:
        """The script for these tasks: one, or as many as the array has jobs."""
        python = shlex.join([sys.executable, "-P", "-m", "backburner.cli"])
        options = [f"--target={target}"] if target else []
        if without_password(settings.store) == settings.store:
            options.append(f"--store={settings.store}")
        return _SCRIPT.format(
            environment=shlex.quote(str(self.environment)),
            setup=settings.slurm.setup,
            task_ids=" ".join(task_ids),
            command=settings.slurm.command or python,
            options=shlex.join(options),
        )
