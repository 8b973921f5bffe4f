"""Settings: records in groups, immutable all the way down.

`Settings.load` reads them from arguments, the environment and a file, and imports the reader for it.
This module itself stays light: a supervisor gets its settings as JSON and needs no reader.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from ..errors import ConfigError

R = TypeVar("R")

#: The number that no user can have.
_NOBODY_AT_ALL = 2**32 - 1


def _setting(default: Any, help: str, *, example: str = "") -> Any:
    """A setting; a callable makes its default. The example is shown to who gives something else."""
    metadata = {"help": help, "example": example}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Queue:
    """A resource class: how many workers this host gives it, and how many tasks may wait in it."""

    workers: int = 2
    max_length: int = 10_000


def default_queues() -> dict[str, Queue]:
    cpus = os.cpu_count() or 1
    return {
        "cpu_small": Queue(workers=max(2, cpus)),
        "cpu_standard": Queue(workers=max(2, cpus)),
        "cpu_heavy": Queue(workers=1),
        "gpu_small": Queue(workers=1),
    }


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """How a SQLite file is written."""

    synchronous: Literal["full", "normal"] = _setting(
        "full", "`full` survives a power cut, `normal` only the death of processes"
    )


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long tasks and their logs are kept."""

    ttl_s: float = _setting(7 * 86400.0, "How long a task is kept after its submission, when nobody says")
    max_ttl_s: float = _setting(90 * 86400.0, "The longest time to live that a caller may ask for")
    purge_after_s: float = _setting(86400.0, "How long an expired task's bare record is kept")
    pack_logs_after_s: float = _setting(3600.0, "When the logs of a finished task are compressed")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much one task may have."""

    max_input_bytes: int = _setting(1_048_576, "The largest inputs of one task, as JSON")
    max_result_bytes: int = _setting(262_144, "A larger result becomes an artifact with a preview")
    max_checkpoint_bytes: int = _setting(16_777_216, "The largest checkpoint, as JSON")
    max_log_bytes: int = _setting(67_108_864, "What one attempt may log; the rest is dropped, with a note")
    max_runtime_s: float = _setting(
        86400.0, "The time limit of a task whose tool names none; no caller may ask for more"
    )
    max_memory_mb: int | None = _setting(
        None, "The most memory of one task, whatever its tool or caller says", example="4096"
    )
    max_scratch_mb: int | None = _setting(
        None, "The most scratch space of one task, whatever its tool or caller says", example="10000"
    )
    max_cpu: float | None = _setting(
        None, "The most CPUs of one task, whatever its tool or caller says", example="2"
    )


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """How the process works that runs the tasks of a store on this host, and sweeps up."""

    heartbeat_s: float = _setting(2.0, "How often a supervisor says that its workers are alive")
    lease_grace_s: float = _setting(
        30.0, "When a supervisor whose heartbeats do not arrive ends its runners; others take over soon after"
    )
    cancel_grace_s: float = _setting(5.0, "How long a cancelled or overdue tool has before it is killed")
    drain_grace_s: float = _setting(30.0, "How long a supervisor that is told to stop waits for its tasks")
    idle_exit_s: float = _setting(300.0, "When a supervisor without work leaves; 0: never")
    import_timeout_s: float = _setting(300.0, "How long the import of an app may take")
    keeper_interval_s: float = _setting(5.0, "How often the keeper sweeps")
    max_tasks_per_runner: int = _setting(1000, "When a runner is replaced by a new one")

    @property
    def lost_after_s(self) -> float:
        """After how much silence others may take a supervisor's tasks: by then it has ended its runners."""
        return self.lease_grace_s + max(1.0, self.lease_grace_s / 5)


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """How far tools are kept from each other and from the host; security.md says what each of these gives."""

    runners: Literal["warm", "fresh"] = _setting(
        "warm",
        "For tools that name none: `warm` (a process serves one owner, put back between tasks) or `fresh`"
        " (each task has its own)",
    )
    no_new_privileges: bool = _setting(
        False, "Lets nothing that a tool starts gain rights, so not sudo or ping either", example="true"
    )
    users: str = _setting(
        "",
        "Whom tools run as, where the supervisor is root: a user's name, or numbers such as `61000-61099`,"
        " one for each worker",
    )
    network: Literal["host", "none"] = _setting(
        "host", "`none` leaves tools no network but a loopback of their own"
    )
    files: Literal["host", "task"] = _setting(
        "host",
        "`task` lets tools write to the folder of their task alone, and read neither the store nor the"
        " folders of other tasks",
    )
    writable: tuple[str, ...] = _setting(
        (), "Where tools may write all the same, with `files` as `task`", example='["/srv/results"]'
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "writable", tuple(self.writable))
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", self.users)
        if numbers and not 0 < int(numbers[1]) <= int(numbers[2] or numbers[1]) < _NOBODY_AT_ALL:
            reason = f"{self.users!r} is no range of users; write for example 61000-61099"
            raise ConfigError(setting="isolation.users", reason=reason)


@dataclass(frozen=True, slots=True)
class McpSettings:
    """What MCP clients are offered, and how long their calls are held."""

    task_tools: bool = _setting(
        True, "Whether servers list the task tools (submit_task and so on)", example="false"
    )
    task_tools_prefix: str = _setting("", "Put before the names of the task tools")
    patience_s: float | None = _setting(
        None,
        "How long a plain call is held before the client gets a handle (default: by its name; else 50 s)",
    )
    client_patience: Mapping[str, float | Literal["forever"]] = _setting(
        dict,
        "How long to hold calls by a client's name or `name@version`, where the first that fits counts",
        example='{"cursor*": "50s", "my-host@2.*": "forever"}',
    )
    announce_jobs: Literal["declared", "all"] = _setting(
        "declared",
        "Who is notified of how a job goes on, where the tool's author leaves it open: `declared` (clients"
        " that say they can take it) or `all`",
    )
    progress_silence_s: float = _setting(30.0, "When a progress token that nobody uses is forgotten")
    kept_headers: tuple[str, ...] = _setting(
        ("*",),
        "Request headers that are kept with a task, for the tools of an attached server, by name or pattern."
        " One that sounds like a secret must be named in full; Authorization and Cookie are never kept",
        example='["x-team", "x-api-key"]',
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept_headers", tuple(self.kept_headers))
        object.__setattr__(self, "client_patience", MappingProxyType(dict(self.client_patience)))


@dataclass(frozen=True, slots=True)
class TaskIdSettings:
    """Where the files of the TaskId contract are."""

    state_dir: str = _setting("", "The folder of the prompt log and the task file (default: as data_dir)")
    state_roots: tuple[str, ...] = _setting(
        (), "Folders in which a call may name its own place for these files", example='["/home/ann/.chatos"]'
    )
    ui_prompt_file: str = _setting("ui-prompts.jsonl", "The name of the prompt log in state_dir")
    state_file: str = _setting("mcp_tasks.v1.json", "The name of the task file in state_dir")

    def __post_init__(self) -> None:
        object.__setattr__(self, "state_roots", tuple(self.state_roots))
        for root in self.state_roots:
            if not root.startswith(("/", "~")):  # the supervisor works in another folder than the server
                reason = f"{root!r} is no absolute path; write for example /home/ann/.chatos"
                raise ConfigError(setting="task_id.state_roots", reason=reason)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may call over HTTP. Where no tokens, key or key set are named, nobody is asked."""

    tokens: str = _setting("", "A file of named, hashed bearer tokens")
    jwt_key: str = _setting("", "A shared secret, or a file with a PEM key, that signs JWTs")
    jwks: str = _setting("", "A file or URL with the JSON Web Key Set that signs JWTs")
    issuer: str = _setting("", "The issuer that a JWT must name")
    audience: str = _setting("", "The audience that a JWT must name")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How the HTTP server is reached, and by whom."""

    public_url: str = _setting(
        "",
        "The address of the server as clients see it, for artifact links (default: as each reached it)",
    )
    artifact_link_s: float = _setting(86400.0, "How long a signed artifact link works")
    allowed_hosts: tuple[str, ...] = _setting((), "More Host names to answer to", example='["lab.example"]')
    allow_anonymous: bool = _setting(
        False, "Lets a server without tokens listen beyond this host", example="true"
    )
    max_connections: int = _setting(1000, "How many clients may be connected; more are turned away with 503")
    idle_timeout_s: float = _setting(
        60.0,
        "When a connection is ended on which nothing is asked or answered; streams and held calls are not",
    )
    auth: AuthSettings = field(default_factory=AuthSettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed_hosts", tuple(self.allowed_hosts))


Group = (
    SqliteSettings
    | RetentionSettings
    | LimitSettings
    | SupervisorSettings
    | IsolationSettings
    | McpSettings
    | TaskIdSettings
    | HttpSettings
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting there is; what is named most stands here, the rest in groups."""

    store: str = _setting(
        "", "Where tasks are kept: sqlite:///file.db or postgresql://… (default: a file of its own)"
    )
    target: str = _setting(
        "", "The app that the command line works with, when it is not told: lab.py or package.module:bb"
    )
    engine: str = _setting("local", "Who starts the work: local")
    data_dir: str = _setting("", "Where task folders and artifacts are (default: beside the SQLite file)")
    queues: Mapping[str, Queue] = _setting(
        default_queues,
        "Workers and length cap of each queue on this host",
        example='{"cpu_heavy": {"workers": 2, "max_length": 100}}',
    )
    default_queue: str = _setting("cpu_standard", "The queue of tools that name none")
    default_estimate_s: float = _setting(
        60.0, "The run time that callers are told to expect while nothing is known of a tool, nor of others"
    )
    fair_share: str = _setting("", "Share a queue fairly by `owner`, or by a tag prefix such as `project:`")
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    supervisor: SupervisorSettings = field(default_factory=SupervisorSettings)
    isolation: IsolationSettings = field(default_factory=IsolationSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    task_id: TaskIdSettings = field(default_factory=TaskIdSettings)
    http: HttpSettings = field(default_factory=HttpSettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "queues", MappingProxyType(dict(self.queues)))
        if self.default_queue not in self.queues:
            known = ", ".join(self.queues)
            reason = f"there is no queue named {self.default_queue!r}; known: {known}"
            raise ConfigError(setting="default_queue", reason=reason)
        for name, queue in self.queues.items():
            if queue.workers < 0 or queue.max_length < 1:
                reason = "workers must be at least 0 and max_length at least 1"
                raise ConfigError(setting=f"queues.{name}", reason=reason)

    @classmethod
    def load(
        cls,
        name: str = "backburner",
        arguments: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        file: str | Path | None = None,
    ) -> Settings:
        """The settings in force for the app `name`. Raises ConfigError, naming the setting."""
        from .reading import read

        return read(name, arguments or {}, os.environ if environment is None else environment, file)

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


def groups_of(record: type) -> dict[str, type]:
    """The fields of a record that are records of settings themselves."""
    made: dict[str, Any] = {entry.name: entry.default_factory for entry in dataclasses.fields(record)}
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
    return {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}


def _record(kind: type[R], values: Mapping[str, Any]) -> R:
    groups = groups_of(kind)
    return kind(
        **{name: _record(groups[name], value) if name in groups else value for name, value in values.items()}
    )


def default_store(name: str, environment: Mapping[str, str]) -> str:
    """A SQLite file in the user's state folder: a server that a host starts has no folder of its own."""
    return f"sqlite:///{state_folder(environment)}/{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}.db"


def without_password(url: str) -> str:
    """The URL for messages and lists; the password stays out of both."""
    scheme, _, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    if not at:
        return url
    return f"{scheme}://{credentials.split(':')[0]}@{host}"


def state_folder(environment: Mapping[str, str]) -> Path:
    """Where this user's programs keep what they must not forget."""
    return Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "backburner"
