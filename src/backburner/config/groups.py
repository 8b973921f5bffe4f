"""The groups of settings: what can be set about each part of the house, with its default and its help."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from ..errors import ConfigError
from ..limits import Limits, ToolLimits

_URL = re.compile(r"https?://([^][\s/?#]+|\[[0-9A-Fa-f:.]+\](:\d+)?)(/[^\s?#]*)?")

#: The number that no user can have.
_NOBODY_AT_ALL = 2**32 - 1


def setting(default: Any, help: str, *, example: str = "") -> Any:
    """A setting; a callable makes its default. The example is shown to who gives something else."""
    metadata = {"help": help, "example": example}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Queue:
    """A resource class: how many workers this host gives it, and how many tasks may wait in it.

    `engine` says who starts its work; empty: the app's engine.
    """

    workers: int = 2
    max_length: int = 10_000
    engine: str = ""


#: The queue for tools that wait: its workers need no core each.
IO_QUEUE = "io"


def has_gpu() -> bool:
    """Return whether this host has a GPU for computing: one of NVIDIA or AMD, or that of Windows in WSL."""
    devices = ("nvidia[0-9]*", "kfd", "dxg")
    return any(True for name in devices for _ in Path("/dev").glob(name))


def default_queues() -> dict[str, Queue]:
    cpus = os.cpu_count() or 1
    return {
        "cpu_small": Queue(workers=max(2, cpus)),
        "cpu_standard": Queue(workers=max(2, cpus)),
        "cpu_heavy": Queue(workers=1),
        "gpu_small": Queue(workers=1 if has_gpu() else 0),
        IO_QUEUE: Queue(workers=64),
    }


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What servers and supervisors say of themselves; observing.md says how a line looks."""

    format: Literal["text", "json"] = setting("text", "How a line is written: `text` or `json`")
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "What is worth a line: `debug`, `info`, `warning` or `error`"
    )


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """How a SQLite file is written."""

    synchronous: Literal["full", "normal"] = setting(
        "full", "`full` survives a power cut, `normal` only the death of processes"
    )


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long tasks and their logs are kept."""

    ttl_s: float = setting(7 * 86400.0, "How long a task is kept after its end")
    max_ttl_s: float = setting(90 * 86400.0, "The longest time to live that a caller may ask for")
    purge_after_s: float = setting(86400.0, "How long an expired task's bare record is kept")
    pack_logs_after_s: float = setting(3600.0, "When the last lines of a finished task's log are compressed")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much one task may have, and how many tasks may run at a time and start in a minute."""

    max_input_bytes: int = setting(1_048_576, "The largest inputs of one task, as JSON")
    max_result_bytes: int = setting(
        262_144, "A larger result is kept in files: its images and so on, then all of it"
    )
    max_checkpoint_bytes: int = setting(16_777_216, "The largest checkpoint, as JSON")
    max_log_bytes: int = setting(67_108_864, "What one attempt may log; the rest is dropped, with a note")
    max_runtime_s: float = setting(
        86400.0, "The time limit of a task whose tool names none; no caller may ask for more"
    )
    max_memory_mb: int | None = setting(
        None, "The most memory of one task, whatever its tool or caller says", example="4096"
    )
    max_scratch_mb: int | None = setting(
        None, "The most scratch space of one task, whatever its tool or caller says", example="10000"
    )
    max_cpu: float | None = setting(
        None, "The most CPUs of one task, whatever its tool or caller says", example="2"
    )
    max_running_per_owner: int | None = setting(
        None, "How many tasks of one owner may run at a time; the others wait, and say so", example="4"
    )
    max_starts_per_minute_per_owner: int | None = setting(
        None, "How many tasks of one owner may start in a minute", example="60"
    )
    tools: Mapping[str, ToolLimits] = setting(
        dict,
        "How many tasks of a tool may run at a time (`max_running`), with one key (`max_running_per_key`),"
        " and start in a minute (`max_starts_per_minute`), by its name or a pattern; the first that fits"
        " counts. A number alone is `max_running`. Of these and the tool's own limits, the least counts",
        example='{"relax": {"max_running": 2, "max_starts_per_minute": 30}}',
    )

    def __post_init__(self) -> None:
        tools = {
            name: said if isinstance(said, ToolLimits) else ToolLimits(**said)
            for name, said in self.tools.items()
        }
        object.__setattr__(self, "tools", MappingProxyType(tools))

    @property
    def of_running(self) -> Limits:
        """Those that are about how many tasks run and start."""
        return Limits(self.max_running_per_owner, self.max_starts_per_minute_per_owner, self.tools)


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """How the process works that runs the tasks of a store on this host, and sweeps up."""

    heartbeat_s: float = setting(2.0, "How often a supervisor says that its workers are alive")
    lease_grace_s: float = setting(
        30.0, "When a supervisor whose heartbeats do not arrive ends its runners; others take over soon after"
    )
    cancel_grace_s: float = setting(5.0, "How long a cancelled or overdue tool has before it is killed")
    drain_grace_s: float = setting(30.0, "How long a supervisor that is told to stop waits for its tasks")
    idle_exit_s: float = setting(300.0, "When a supervisor without work leaves; 0: never")
    ask_grace_s: float = setting(
        60.0, "How long a task that waits for an answer keeps its worker; then others may have that"
    )
    max_parked: int = setting(
        32, "How many tasks may wait for answers without a worker, each in its process; more keep theirs"
    )
    import_timeout_s: float = setting(300.0, "How long the import of an app may take")
    keeper_interval_s: float = setting(5.0, "How often the keeper sweeps")
    max_tasks_per_runner: int = setting(1000, "When a runner is replaced by a new one")
    runner_idle_exit_s: float = setting(
        60.0,
        "When a runner without work ends; of each queue, as many as there are CPUs stay, and at least 4. 0:"
        " none ends",
    )
    environment: Literal["submitter", "own"] = setting(
        "submitter",
        "Whose environment, arguments and Python a task runs with: `submitter` (those of the process that"
        " submitted it, where that was on this host) or `own` (those of the supervisor)",
    )

    def __post_init__(self) -> None:
        if self.lease_grace_s <= self.heartbeat_s:
            reason = (
                f"a supervisor that says every {self.heartbeat_s:g} s that it is alive"
                f" (supervisor.heartbeat_s) would end its own tasks; make it some times as long"
            )
            raise ConfigError(setting="supervisor.lease_grace_s", reason=reason)

    @property
    def lost_after_s(self) -> float:
        """After how much silence others may take a supervisor's tasks: by then it has ended its runners."""
        return self.lease_grace_s + max(1.0, self.lease_grace_s / 5)


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """How far tools are kept from each other and from the host; security.md says what each of these gives."""

    runners: Literal["warm", "fresh", "spawn"] = setting(
        "warm",
        "For tools that name none: `warm` (a process serves one owner, put back between tasks), `fresh`"
        " (each task has its own) or `spawn` (as `warm`, but each process imports the app itself; see"
        " processes.md)",
    )
    no_new_privileges: bool = setting(
        False, "Lets nothing that a tool starts gain rights, so not sudo or ping either", example="true"
    )
    users: str = setting(
        "",
        "Whom tools run as, where the supervisor is root: a user's name, or numbers such as `61000-61099`,"
        " one for each worker",
    )
    network: Literal["host", "none"] = setting(
        "host", "`none` leaves tools no network but a loopback of their own"
    )
    files: Literal["host", "task"] = setting(
        "host",
        "`task` lets tools write to the folder of their task alone, and read neither the store nor the"
        " folders of other tasks",
    )
    writable: tuple[str, ...] = setting(
        (), "Where tools may write all the same, with `files` as `task`", example='["/srv/results"]'
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "writable", tuple(self.writable))
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", self.users)
        if numbers and not 0 < int(numbers[1]) <= int(numbers[2] or numbers[1]) < _NOBODY_AT_ALL:
            reason = f"{self.users!r} is no range of users; write for example 61000-61099"
            raise ConfigError(setting="isolation.users", reason=reason)


#: The settings of McpSettings that are tables by the names of clients.
CLIENT_TABLES = ("client_patience", "client_result_tokens", "client_result_bytes")


@dataclass(frozen=True, slots=True)
class McpSettings:
    """What MCP clients are offered, and how long their calls are held."""

    task_tools: bool = setting(
        True, "Whether servers list the task tools (submit_task and so on)", example="false"
    )
    task_tools_prefix: str = setting("", "Put before the names of the task tools")
    answer: Literal["auto", "hold", "handle"] = setting(
        "auto",
        "How slow tools that do not say answer clients without tasks: `auto`, `hold` (the call stays open to"
        " its end) or `handle` (a job id at once, then progress and the result as notifications)",
        example="handle",
    )
    patience_s: float | None = setting(
        None,
        "How long a plain call is held before the client gets a handle (default: what is known of the client;"
        " else 24 s)",
    )
    client_patience: Mapping[str, float | Literal["forever"]] = setting(
        dict,
        "How long to hold calls by a client's name or `name@version`, where the first that fits counts",
        example='{"cursor*": "50s", "my-host@2.*": "forever"}',
    )
    result_tokens: int = setting(
        20_000,
        "The longest result that a client gets whole, in tokens, taken as four bytes of its text each; of a"
        " longer one it gets its beginning, its end and its shape, and ways to read the rest; 0: any length",
        example="50000",
    )
    client_result_tokens: Mapping[str, int | Literal["any"]] = setting(
        dict,
        "The same by a client's name or `name@version`, where the first that fits counts",
        example='{"small-host": 5000, "my-program@2.*": "any"}',
    )
    whole_result_bytes: int | None = setting(
        None,
        "The most bytes of a result that a client is sent, with its images and files, which are no text;"
        " what is too much of these becomes links (default: 1 MB over HTTP, 4 MB over stdio)",
        example="250000",
    )
    client_result_bytes: Mapping[str, int | Literal["any"]] = setting(
        dict,
        "The same by a client's name or `name@version`, where the first that fits counts",
        example='{"small-host": 50000, "my-host@2.*": "any"}',
    )
    on_cancel: Literal["cancel", "detach"] = setting(
        "cancel",
        "What becomes of the task of a held call that its client cancels, where the tool does not say:"
        " `cancel`, or `detach` (it goes on). A client's time-out never cancels",
    )
    join_window_s: float = setting(
        600.0,
        "How long after its end a task whose result nobody has got is found by the same call, made again;"
        " 0: no call joins another",
    )
    attended_s: float = setting(
        30.0,
        "How long after the last sign of its caller, or of the server that holds it, a call counts as waited"
        " for",
    )
    announce_jobs: Literal["declared", "all"] = setting(
        "declared",
        "Who is notified of how a job goes on, where the tool's author leaves it open: `declared` (clients"
        " that say they can take it) or `all`",
    )
    wake_chat: Literal["off", "claude-channel"] = setting(
        "off",
        "Whether to speak up in the chat when a task is over whose handle went there: `claude-channel` is for"
        " Claude Code (see notifications.md for what it asks of its user)",
    )
    card: bool = setting(
        True,
        "Whether calls of slow tools are shown on a card, with progress, log and buttons, in chats of clients"
        " that can show pages of servers (MCP Apps)",
        example="false",
    )
    card_tells: Literal["context", "message", "nothing"] = setting(
        "context",
        "What a card tells the model when its task is over: `context` (its end and its result, for the next"
        " turn), `message` (the same, and a message in the chat that begins a turn) or `nothing`",
    )
    progress_silence_s: float = setting(30.0, "When a progress token that nobody uses is forgotten")
    kept_headers: tuple[str, ...] = setting(
        ("*",),
        "Request headers that are kept with a task, for the tools of an attached server, by name or pattern."
        " One that sounds like a secret must be named in full; Authorization and Cookie are never kept",
        example='["x-team", "x-api-key"]',
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept_headers", tuple(self.kept_headers))
        for name in CLIENT_TABLES:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


@dataclass(frozen=True, slots=True)
class TaskIdSettings:
    """Where the files of the TaskId contract are."""

    state_dir: str = setting("", "The folder of the prompt log and the task file (default: as data_dir)")
    state_roots: tuple[str, ...] = setting(
        (),
        "Folders below which a call over HTTP may name its own place for these files; over stdio it may name"
        " any",
        example='["/home/ann/.chatos"]',
    )
    ui_prompt_file: str = setting("ui-prompts.jsonl", "The name of the prompt log in state_dir")
    state_file: str = setting("mcp_tasks.v1.json", "The name of the task file in state_dir")

    def __post_init__(self) -> None:
        object.__setattr__(self, "state_roots", tuple(self.state_roots))
        for root in self.state_roots:
            if not root.startswith(("/", "~")):  # the supervisor works in another folder than the server
                reason = f"{root!r} is no absolute path; write for example /home/ann/.chatos"
                raise ConfigError(setting="task_id.state_roots", reason=reason)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may call over HTTP. Where there are no tokens, key or key set, nobody is asked."""

    tokens: str = setting(
        "", "A file of named, hashed bearer tokens (default: `tokens` in the data folder, if it is there)"
    )
    jwt_key: str = setting("", "A shared secret, or a file with a PEM key, that signs JWTs")
    jwks: str = setting("", "A file or URL with the JSON Web Key Set that signs JWTs")
    issuer: str = setting("", "The issuer that a JWT must name")
    audience: str = setting("", "The audience that a JWT must name")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """How the HTTP server is reached, and by whom."""

    public_url: str = setting(
        "",
        "The address of the server as clients see it, for artifact links (default: as each reached it)",
    )
    artifact_link_s: float = setting(86400.0, "How long a signed artifact link works")
    allowed_hosts: tuple[str, ...] = setting((), "More Host names to answer to", example='["lab.example"]')
    allow_anonymous: bool = setting(
        False, "Lets a server without tokens listen beyond this host", example="true"
    )
    dashboard: bool = setting(True, "Shows people what the tasks do, at `/`: see dashboard.md")
    worker_door: bool = setting(
        False,
        "Lets workers with a token for a task (`backburner token task`) run it through this server; they"
        " need no password of the store",
        example="true",
    )
    max_connections: int = setting(1000, "How many clients may be connected; more are turned away with 503")
    idle_timeout_s: float = setting(
        60.0,
        "When a connection is ended on which nothing is asked or answered; streams and held calls are not",
    )
    auth: AuthSettings = field(default_factory=AuthSettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed_hosts", tuple(self.allowed_hosts))
        if self.public_url and not _URL.fullmatch(self.public_url):
            reason = f"{self.public_url!r} is no address of a server; write for example https://lab.example"
            raise ConfigError(setting="http.public_url", reason=reason)


Group = (
    LogSettings
    | SqliteSettings
    | RetentionSettings
    | LimitSettings
    | SupervisorSettings
    | IsolationSettings
    | McpSettings
    | TaskIdSettings
    | HttpSettings
)
