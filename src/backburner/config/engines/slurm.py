"""The settings of the engine `slurm`: which jobs it submits, and how they start."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...errors import ConfigError
from ..groups import setting

#: The settings of SlurmSettings that are tables by the names of our queues; "*" stands for all others.
SLURM_TABLES = ("partition", "account", "gres", "arguments")

_OURS = "it is for the engine to give"
_TIME = "a job's time follows the tool's timeout and limits.max_runtime_s; set those"
#: What `arguments` may not say, and why.
_REFUSED = {
    **dict.fromkeys(("--time", "-t"), _TIME),
    **dict.fromkeys(("--array", "-a", "--output", "-o", "--wrap", "--wait", "-W", "--parsable"), _OURS),
    **dict.fromkeys(("--clusters", "--cluster", "-M"), "jobs are looked for in one cluster, the default"),
}


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How tasks become jobs of Slurm; slurm.md says what a cluster needs for it.

    What is by queue has the names of queues here, and `*` for those that are not named.
    """

    partition: Mapping[str, str] = setting(
        dict,
        "The partition of a queue's jobs (default: as Slurm has it)",
        example='{"gpu_small": "gpu", "*": "main"}',
    )
    account: Mapping[str, str] = setting(
        dict, "The account that a queue's jobs are charged to", example='{"*": "chem"}'
    )
    gres: Mapping[str, str] = setting(
        dict,
        "What a queue's jobs need beside CPUs and memory, such as GPUs",
        example='{"gpu_small": "gpu:1"}',
    )
    arguments: Mapping[str, str] = setting(
        dict,
        "More arguments of `sbatch` for a queue's jobs; they come last, so they win over ours",
        example='{"cpu_heavy": "--qos=long --constraint=skylake"}',
    )
    command: str = setting(
        "",
        "How a job starts Backburner (default: the Python of the supervisor, with its import path)",
        example='"apptainer exec lab.sif backburner"',
    )
    setup: str = setting(
        "", "Lines of shell that each job begins with", example='"module load cuda\\nulimit -s unlimited"'
    )
    bin_dir: str = setting(
        "", "The folder of `sbatch`, `squeue`, `sacct` and `scancel` (default: as PATH has them)"
    )
    timeout_s: float = setting(30.0, "How long one of these commands may take")
    max_array: int = setting(
        1000, "The most tasks in one array job; not more than MaxArraySize of slurm.conf. 1: no arrays"
    )
    memory_overhead_mb: int = setting(
        256, "How much more memory a job gets than its task may use: for what watches over the task"
    )
    time_overhead_s: float = setting(
        300.0, "How much longer a job may take than its task: for its start, and for a tidy end"
    )
    drain_grace_s: float = setting(
        10.0,
        "How long a task may go on whose job Slurm ends (preempted, requeued, cancelled there) before it is"
        " stopped; less than KillWait of slurm.conf",
    )

    def __post_init__(self) -> None:
        for name in SLURM_TABLES:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.max_array < 1:
            raise ConfigError(setting="slurm.max_array", reason="it must be at least 1")
        _words("command", self.command)
        for queue, text in self.arguments.items():
            for word in _words(f"arguments.{queue}", text):
                name = word.partition("=")[0] if word.startswith("--") else word[:2]
                if name in _REFUSED:
                    reason = f"{name} cannot be given here: {_REFUSED[name]}"
                    raise ConfigError(setting=f"slurm.arguments.{queue}", reason=reason)

    def of(self, table: str, queue: str) -> str:
        """What one of the tables says for a queue; empty where it says nothing."""
        values: Mapping[str, str] = getattr(self, table)
        return values.get(queue, values.get("*", ""))


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(setting=f"slurm.{name}", reason=f"{text!r}: {error}") from None
