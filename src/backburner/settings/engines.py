"""Settings of the broker, Slurm and AWS Batch engines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from ..errors import ConfigError
from .groups import setting

_SCHEMES = ("redis", "rediss", "amqp", "amqps")
#: What Dramatiq and RabbitMQ both take as the beginning of a queue's name.
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The message broker that wakes Dramatiq or Celery workers."""

    url: str = setting(
        "redis://127.0.0.1:6379/0",
        "The broker: Redis (redis://, rediss://) or RabbitMQ (amqp://, amqps://)",
        example='"amqp://lab:secret@rabbit.example/lab"',
    )
    namespace: str = setting(
        "backburner", "Prefix of the broker's queue names; unique for each app that shares the broker"
    )

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in _SCHEMES:  # it is not shown: there may be a password in it
            kinds = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
            reason = f"it is no address of a broker; one begins with {kinds}"
            raise ConfigError(setting="broker.url", reason=reason)
        if not _NAMESPACE.fullmatch(self.namespace):
            reason = f"{self.namespace!r} must be letters, digits, - and _, first a letter; for example lab"
            raise ConfigError(setting="broker.namespace", reason=reason)

    @property
    def is_redis(self) -> bool:
        return self.url.startswith("redis")

    def name_of(self, engine: str, queue: str) -> str:
        """The broker's name for one of our queues. Dramatiq and Celery make theirs differently."""
        return f"{self.namespace}.{engine}.{queue}"


#: The settings of SlurmSettings that are tables by the names of our queues; "*" stands for all others.
SLURM_TABLES = ("arguments",)

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
    """Slurm jobs. `*` stands for queues that are not named."""

    arguments: Mapping[str, str] = setting(
        dict,
        "Further arguments of `sbatch` by queue; they come last and override ours",
        example='{"cpu_heavy": "--qos=long --constraint=skylake"}',
    )
    command: str = setting(
        "",
        "The command that starts Backburner in a job (default: the supervisor's Python, with its "
        "import path)",
        example='"apptainer exec lab.sif backburner"',
    )
    setup: str = setting(
        "", "Shell lines at the start of each job", example='"module load cuda\\nulimit -s unlimited"'
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", MappingProxyType(dict(self.arguments)))
        _words("command", self.command)
        for queue, text in self.arguments.items():
            for word in _words(f"arguments.{queue}", text):
                name = word.partition("=")[0] if word.startswith("--") else word[:2]
                if name in _REFUSED:
                    reason = f"{name} cannot be given here: {_REFUSED[name]}"
                    raise ConfigError(setting=f"slurm.arguments.{queue}", reason=reason)

    def arguments_of(self, queue: str) -> str:
        """Return the arguments of `sbatch` for the jobs of a queue."""
        return self.arguments.get(queue, self.arguments.get("*", ""))


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(setting=f"slurm.{name}", reason=f"{text!r}: {error}") from None


#: The settings that are tables by the names of our queues; "*" is for all that are not named.
BATCH_TABLES = ("job_queue", "job_definition")


@dataclass(frozen=True, slots=True)
class AwsBatchSettings:
    """AWS Batch jobs."""

    job_queue: Mapping[str, str] = setting(
        dict,
        "Batch's job queue, by name or ARN, for each of our queues; `*` for all others",
        example='{"*": "lab", "gpu_small": "lab-gpu"}',
    )
    job_definition: Mapping[str, str] = setting(
        dict,
        "The job definition, by name or ARN, for each of our queues; `*` for all others",
        example='{"*": "backburner-lab"}',
    )
    target: str = setting(
        "",
        "The app inside the job's container: lab.py or package.module:bb (default: the app of the task)",
    )
    server: str = setting(
        "",
        "The server through whose worker door (http.worker_door) jobs work, with a token for one task"
        " each, instead of through the store",
        example='"https://lab.example"',
    )

    def __post_init__(self) -> None:
        for name in BATCH_TABLES:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        if self.server and not self.server.startswith(("http://", "https://")):
            reason = f"{self.server!r} is no address of a server; one begins with https:// or http://"
            raise ConfigError(setting="aws_batch.server", reason=reason)

    def of(self, table: str, queue: str) -> str:
        """Return the entry of a table for a queue; empty if there is none."""
        values: Mapping[str, str] = getattr(self, table)
        return values.get(queue) or values.get("*", "")
