"""Settings: records in groups, immutable all the way down.

`Settings.load` reads them from arguments, the environment and a file, and imports the reader for it.
This module itself stays light: a supervisor gets its settings as JSON and needs no reader.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote

from ..errors import ConfigError
from .engines import AwsBatchSettings, BrokerSettings, SlurmSettings
from .groups import (
    CLIENT_TABLES,
    IO_QUEUE,
    ArtifactSettings,
    AuthSettings,
    HttpSettings,
    IsolationSettings,
    LimitSettings,
    LogSettings,
    McpSettings,
    Queue,
    RetentionSettings,
    SqliteSettings,
    SupervisorSettings,
    TaskIdSettings,
    WebhookSettings,
    default_queues,
    setting,
)
from .groups import Group as _Group

__all__ = [
    "CLIENT_TABLES",
    "ENGINES",
    "IO_QUEUE",
    "LOCAL",
    "ArtifactSettings",
    "AuthSettings",
    "AwsBatchSettings",
    "BrokerSettings",
    "Group",
    "HttpSettings",
    "IsolationSettings",
    "LimitSettings",
    "LogSettings",
    "McpSettings",
    "Queue",
    "RetentionSettings",
    "Settings",
    "SlurmSettings",
    "SqliteSettings",
    "SupervisorSettings",
    "TaskIdSettings",
    "WebhookSettings",
    "default_queues",
    "default_store",
    "every_setting",
    "field_names",
    "groups_of",
    "plain",
    "state_folder",
    "store_from",
    "variable",
    "without_password",
]

R = TypeVar("R")

#: Who can start the work: the host's own supervisor, or a queue outside.
LOCAL = "local"
ENGINES = (LOCAL, "dramatiq", "celery", "slurm", "aws-batch")

_OfEngine = BrokerSettings | SlurmSettings | AwsBatchSettings
Group = _Group | WebhookSettings | ArtifactSettings | _OfEngine


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting there is; what is named most stands here, the rest in groups."""

    store: str = setting(
        "",
        "The store: sqlite:///file.db or postgresql://… (default: a file for this app and its folder,"
        " in the user's state folder). A relative path counts from the app's folder if code sets it, "
        "from the folder of backburner.toml if that sets it, else from the working directory",
    )
    target: str = setting("", "The app for the command line: lab.py or package.module:bb")
    engine: str = setting(
        LOCAL,
        f"Engine of the queues that name none: {', '.join(ENGINES)}",
        example="celery",
    )
    data_dir: str = setting(
        "",
        "The folder of artifacts, task folders, locks and logs of supervisors (default: beside the "
        "SQLite file)",
    )
    queues: Mapping[str, Queue] = setting(
        default_queues,
        "Workers, length cap and engine of queues on this host (default engine: the app's)",
        example='{"cpu_heavy": {"workers": 2, "max_length": 100}, "gpu_small": {"engine": "slurm"}}',
    )
    default_queue: str = setting("cpu_standard", "The queue of tools that name none")
    async_queue: str = setting(
        "",
        "The queue of `async def` tools that name none (default: `io`; `default_queue` if that, "
        "`queues` or a range of `isolation.users` is set and `queues` has no `io`)",
    )
    fair_share: str = setting("", "Share a queue fairly by `owner`, or by a tag prefix such as `project:`")
    log: LogSettings = field(default_factory=LogSettings)
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)
    isolation: IsolationSettings = field(default_factory=IsolationSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    task_id: TaskIdSettings = field(default_factory=TaskIdSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    artifacts: ArtifactSettings = field(default_factory=ArtifactSettings)
    aws_batch: AwsBatchSettings = field(default_factory=AwsBatchSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "queues", MappingProxyType(dict(self.queues)))
        for name, queue_name in (("default_queue", self.default_queue), ("async_queue", self.async_queue)):
            if queue_name not in self.queues and (name, queue_name) != ("async_queue", ""):
                known = ", ".join(self.queues)
                reason = f"there is no queue named {queue_name!r}; known: {known}"
                raise ConfigError(setting=name, reason=reason)
        for name, queue in self.queues.items():
            if queue.workers < 0 or queue.max_length < 1:
                reason = "workers must be at least 0 and max_length at least 1"
                raise ConfigError(setting=f"queues.{name}", reason=reason)
            if queue.engine and queue.engine not in ENGINES:
                raise ConfigError(setting=f"queues.{name}.engine", reason=_no_engine(queue.engine))
        if self.engine not in ENGINES:
            raise ConfigError(setting="engine", reason=_no_engine(self.engine))

    def engine_of(self, queue: str) -> str:
        """Return the engine of a queue."""
        configured = self.queues.get(queue)
        return (configured.engine if configured else "") or self.engine

    def queues_of(self, engine: str) -> list[str]:
        return [name for name in self.queues if self.engine_of(name) == engine]

    @property
    def outside_engines(self) -> list[str]:
        """The engines in use whose workers are no supervisor's of this host."""
        used = {self.engine_of(name) for name in self.queues}
        return [engine for engine in ENGINES if engine in used and engine != LOCAL]

    @property
    def local_workers(self) -> dict[str, int]:
        """Worker counts of the queues that the supervisor of this host serves."""
        named = {name: self.queues[name].workers for name in self.queues_of(LOCAL)}
        return {name: workers for name, workers in named.items() if workers}

    @classmethod
    def load(
        cls,
        name: str = "backburner",
        arguments: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        file: str | Path | None = None,
        folder: Path | None = None,
    ) -> Settings:
        """The settings in force for the app `name`. Raises ConfigError, naming the setting.

        A relative store among the arguments is in `folder`; without one, in the working folder.
        """
        from .reader import read

        return read(name, arguments or {}, os.environ if environment is None else environment, file, folder)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Settings:
        """Of plain nested values that are valid already; what is not among them has its default."""
        queues = {name: Queue(**queue) for name, queue in values.get("queues", {}).items()}
        return _record(cls, {**values, **({"queues": queues} if queues else {})})

    def with_group(self, group: Group) -> Settings:
        """With another group of its kind: `with_group(replace(settings.supervisor, idle_exit_s=0))`."""
        (name,) = (name for name, kind in groups_of(Settings).items() if kind is type(group))
        changed: dict[str, Any] = {name: group}
        return dataclasses.replace(self, **changed)

    def to_json(self) -> str:
        return json.dumps(self, default=plain)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return cls.from_values(json.loads(text))


def _no_engine(name: str) -> str:
    return f"there is no engine named {name!r}; known: {', '.join(ENGINES)}"


def groups_of(record: type) -> dict[str, type]:
    """The fields of a record that are records of settings themselves."""
    entries = dataclasses.fields(record) if dataclasses.is_dataclass(record) else ()
    made: dict[str, Any] = {entry.name: entry.default_factory for entry in entries}
    return {
        name: kind for name, kind in made.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    }


def every_setting(record: type = Settings, before: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Each setting by its path, such as `http.auth.tokens`, in the order of the records."""
    groups = groups_of(record)
    for entry in dataclasses.fields(record):
        if entry.name in groups:
            yield from every_setting(groups[entry.name], f"{before}{entry.name}.")
        else:
            yield f"{before}{entry.name}", entry


def variable(path: str) -> str:
    """The environment variable of a setting: `BACKBURNER_HTTP__AUTH__TOKENS`."""
    return f"BACKBURNER_{path.upper().replace('.', '__')}"


def plain(value: Any) -> dict[str, Any]:
    """A record or a mapping as a dict, one level deep."""
    if isinstance(value, Mapping):
        return dict(value)
    return {name: getattr(value, name) for name in field_names(type(value))}


def field_names(record: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a msgspec struct."""
    if dataclasses.is_dataclass(record):
        return tuple(entry.name for entry in dataclasses.fields(record))
    names: tuple[str, ...] = record.__struct_fields__
    return names


def _record(kind: type[R], values: Mapping[str, Any]) -> R:
    groups = groups_of(kind)
    return kind(
        **{name: _record(groups[name], value) if name in groups else value for name, value in values.items()}
    )


def default_store(name: str, environment: Mapping[str, str], folder: Path | None = None) -> str:
    """A SQLite file in the user's state folder: a server that a host starts has no folder of its own.

    `folder` is where the app's file is: two projects whose apps have one name have a store each.
    """
    file = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
    if folder is not None:
        file += f"-{hashlib.sha256(_project(folder).encode()).hexdigest()[:8]}"
    return f"sqlite:///{state_folder(environment)}/{file}.db"


def _project(folder: Path) -> str:
    """Return the identity of a project: its folder, or the path in site-packages of an installed package."""
    path = folder.absolute().as_posix()
    return re.split(r"/(?:site|dist)-packages/", path)[-1]


def store_from(folder: Path, url: str) -> str:
    """The URL of a store with a relative file in it as one in `folder`; any other as it is."""
    prefix, rest = "sqlite:///", url.removeprefix("sqlite:///")
    if not url.startswith(prefix) or not rest or rest.startswith("/"):
        return url
    return f"{prefix}{quote(str(folder.absolute()))}/{rest}"


def without_password(url: str) -> str:
    """The URL for messages and lists; the password stays out of both."""
    scheme, _, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    if not at:
        return url
    return f"{scheme}://{credentials.split(':')[0]}@{host}"


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return this user's folder for persistent state."""
    return Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "backburner"
