"""Groups of settings, each with its defaults and help."""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from ..core.lifecycle import TERMINAL, State
from ..core.limits import Limits, ToolLimits
from ..errors import ConfigError

_URL = re.compile(r"https?://([^][\s/?#]+|\[[0-9A-Fa-f:.]+\](:\d+)?)(/[^\s?#]*)?")

#: The number that no user can have.
_NOBODY_AT_ALL = 2**32 - 1


def setting(default: Any, help: str, *, example: str = "") -> Any:
    """A setting; a callable makes its default. The example is shown to who gives something else."""
    metadata = {"help": help, "example": example}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def pace(default: float, help: str) -> Any:
    """A pace that is right everywhere: a setting only so that tests are quick, and not in the reference."""
    return field(default=default, metadata={"help": help, "example": "", "is_pace": True})


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
    """Logging of servers and supervisors; see the guide on monitoring."""

    format: Literal["text", "json"] = setting("text", "How a line is written: `text` or `json`")
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "What is worth a line: `debug`, `info`, `warning` or `error`"
    )


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """Durability of SQLite."""

    synchronous: Literal["full", "normal"] = setting(
        "full", "`full` survives a power cut, `normal` only the death of processes"
    )


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Retention of finished tasks."""

    ttl_s: float = setting(7 * 86400.0, "How long a task is kept after its end")
    max_ttl_s: float = setting(90 * 86400.0, "The longest time to live that a caller may ask for")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits per task, and on the number of running tasks and of starts per minute."""

    max_input_bytes: int = setting(1_048_576, "The largest inputs of one task, as JSON")
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
        """The limits on running tasks and on starts."""
        return Limits(self.max_running_per_owner, self.max_starts_per_minute_per_owner, self.tools)


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """The process that runs the tasks of a store on this host."""

    heartbeat_s: float = pace(2.0, "How often a supervisor says that its workers are alive")
    lease_grace_s: float = setting(
        30.0, "When a supervisor whose heartbeats do not arrive ends its runners; others take over soon after"
    )
    cancel_grace_s: float = setting(5.0, "How long a cancelled or overdue tool has before it is killed")
    drain_grace_s: float = setting(30.0, "How long a supervisor that is told to stop waits for its tasks")
    idle_exit_s: float = setting(300.0, "When a supervisor without work leaves; 0: never")
    import_timeout_s: float = setting(300.0, "How long the import of an app may take")
    keeper_interval_s: float = pace(5.0, "How often the keeper sweeps")
    max_tasks_per_runner: int = setting(1000, "When a runner is replaced by a new one")
    runner_idle_exit_s: float = pace(
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
    """Isolation of tools from each other and from the host; the security checklist has the guarantees."""

    runners: Literal["warm", "fresh", "spawn"] = setting(
        "warm",
        "For tools that name none: `warm` (a process serves one owner until a task changes it), `fresh`"
        " (each task has its own) or `spawn` (as `warm`, but each process imports the app itself; see"
        " explanation/isolation.md)",
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
CLIENT_TABLES = ("client_patience", "client_result_tokens")


@dataclass(frozen=True, slots=True)
class McpSettings:
    """Features for MCP clients, and how long their calls are held open."""

    task_tools: bool | Literal["few"] = setting(
        True,
        "Whether servers list the task tools (submit_task and so on); `few`: only wait_for_task,"
        " get_task_result and cancel_task, and answer_task where a tool asks anyone",
        example='"few"',
    )
    answer: Literal["auto", "hold", "handle"] = setting(
        "auto",
        "How slow tools that do not say answer clients without tasks: `auto`, `hold` (the call stays open to"
        " its end) or `handle` (a job id at once, then progress and the result as notifications)",
        example="handle",
    )
    patience_s: float | None = setting(
        None,
        "How long a plain call is held before the client gets a handle (default: what is known of the client;"
        " else to its end)",
    )
    client_patience: Mapping[str, float | Literal["forever"]] = setting(
        dict,
        "How long to hold calls by a client's name or `name@version`, where the first that fits counts",
        example='{"cursor*": "50s", "my-host@2.*": "forever"}',
    )
    task_grace_s: float | None = setting(
        None,
        "How long a call of any client of the 2026-07-28 tasks is held before it becomes a task, unless it is"
        " known to take longer; 0: every call becomes one at once (default: up to 5 s for hosts whose model"
        " spends a turn on each task, such as Claude Code)",
        example="3s",
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
    on_cancel: Literal["cancel", "detach"] = setting(
        "cancel",
        "What becomes of the task of a held call that its client cancels, where the tool does not say:"
        " `cancel`, or `detach` (it goes on). A client's time-out never cancels",
    )
    join_window_s: float = pace(
        600.0,
        "How long after its end a task whose result nobody has got is found by the same call, made again;"
        " 0: no call joins another",
    )
    attended_s: float = pace(
        30.0, "How long after the last sign of its caller, or of its server, a call counts as waited for"
    )
    wake_chat: Literal["off", "claude-channel"] = setting(
        "off",
        "Whether to speak up in the chat when a task is over whose handle went there: `claude-channel` is for"
        " Claude Code (see the guide on webhooks)",
    )
    card: bool = setting(
        True,
        "Whether calls of slow tools are shown on a card, with progress, log and buttons, in chats of clients"
        " that can show pages of servers (MCP Apps)",
        example="false",
    )
    card_tells: Literal["context", "message", "nothing"] = setting(
        "context",
        "What a card tells the model when a task is over whose result no call has returned: `context` (its"
        " end and its result, for the next turn), `message` (the same, and a message in the chat that begins"
        " a turn) or `nothing`",
    )
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
    """Files of the TaskId contract."""

    state_dir: str = setting("", "The folder of the prompt log and the task file (default: as data_dir)")
    state_roots: tuple[str, ...] = setting(
        (),
        "Folders below which a call over HTTP may name its own place for these files; over stdio it may name"
        " any",
        example='["/home/ann/.chatos"]',
    )
    ui_prompt_file: str = setting("ui-prompts.jsonl", "The name of the prompt log in state_dir")

    def __post_init__(self) -> None:
        object.__setattr__(self, "state_roots", tuple(self.state_roots))
        for root in self.state_roots:
            if not root.startswith(("/", "~")):  # the supervisor works in another folder than the server
                reason = f"{root!r} is no absolute path; write for example /home/ann/.chatos"
                raise ConfigError(setting="task_id.state_roots", reason=reason)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Authentication over HTTP. Without tokens, key and key set there is none."""

    tokens: str = setting(
        "", "A file of named, hashed bearer tokens (default: `tokens` in the data folder, if it is there)"
    )
    jwt_key: str = setting("", "A shared secret, or a file with a PEM key, that signs JWTs")
    jwks: str = setting("", "A file or URL with the JSON Web Key Set that signs JWTs")
    issuer: str = setting("", "The issuer that a JWT must name")
    audience: str = setting("", "The audience that a JWT must name")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The HTTP server."""

    public_url: str = setting(
        "",
        "The address of the server as clients see it, for artifact links (default: as each reached it)",
    )
    artifact_link_s: float = setting(86400.0, "How long a signed artifact link works")
    allowed_hosts: tuple[str, ...] = setting((), "More Host names to answer to", example='["lab.example"]')
    allow_anonymous: bool = setting(
        False, "Lets a server without tokens listen beyond this host", example="true"
    )
    dashboard: bool = setting(True, "Shows people what the tasks do, at `/`: see the guide")
    worker_door: bool = setting(
        False,
        "Lets workers with a token for a task (`backburner token task`) run it through this server; they"
        " need no password of the store",
        example="true",
    )
    max_connections: int = setting(1000, "How many clients may be connected; more are turned away with 503")
    idle_timeout_s: float = pace(
        60.0, "When an idle connection is closed; streams and held calls are not idle"
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


_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_ENDPOINT = re.compile(r"https?://[^\s/?#@]+/?")


@dataclass(frozen=True, slots=True)
class ArtifactSettings:
    """Storage of artifacts; see the guide on files."""

    url: str = setting(
        "",
        "Where artifacts are kept: s3://bucket/prefix, or file:///folder for one that all hosts share"
        " (default: in `data_dir`, on the host that ran the task)",
        example='"s3://lab-artifacts/backburner"',
    )
    endpoint: str = setting(
        "",
        "The server of an S3-compatible storage (default: AWS, or what AWS_ENDPOINT_URL_S3 says)",
        example='"https://minio.lab.example"',
    )
    links: Literal["server", "storage"] = setting(
        "server",
        "Whose links clients get: the `server`'s, which reads the storage for them, or signed ones of the"
        " `storage` itself, which then must be reachable for clients",
    )

    def __post_init__(self) -> None:
        if self.url and not self.bucket and not self.folder:
            reason = f"{self.url!r} is no place; write s3://bucket/prefix, or file:///folder"
            raise ConfigError(setting="artifacts.url", reason=reason)
        if self.endpoint and not _ENDPOINT.fullmatch(self.endpoint):
            reason = (
                f"{self.endpoint!r} is no address of a server; write for example https://minio.lab.example"
            )
            raise ConfigError(setting="artifacts.endpoint", reason=reason)
        if self.links == "storage" and not self.bucket:
            reason = "only S3-compatible storage signs links; set artifacts.url to s3://bucket/prefix"
            raise ConfigError(setting="artifacts.links", reason=reason)

    @property
    def bucket(self) -> str:
        """The bucket in S3-compatible storage; empty where it is a folder."""
        parts = urlsplit(self.url)
        return parts.netloc if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc) else ""

    @property
    def prefix(self) -> str:
        """Prefix of all object keys in the bucket: empty, or ending in a slash."""
        prefix = urlsplit(self.url).path.strip("/")
        return f"{prefix}/" if prefix else ""

    @property
    def folder(self) -> str:
        """The shared folder; empty where it is none."""
        parts = urlsplit(self.url)
        return (
            unquote(parts.path) if parts.scheme == "file" and not parts.netloc and parts.path != "/" else ""
        )


#: By Standard Webhooks: how a secret begins, and how many bytes it may have.
_SECRET_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)
_ENDS = tuple(state for state in State if state in TERMINAL)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Webhooks for finished tasks; see the guide."""

    url: str = setting(
        "", "The endpoint that is told of each task that ends", example='"https://lab.example/hook"'
    )
    secret: str = setting(
        "",
        "What messages are signed with: `whsec_` and 24 to 64 random bytes in base64. With a blank between"
        " them, two sign each message, while receivers change over",
    )
    states: tuple[str, ...] = setting(_ENDS, "Which ends `url` is told of", example='["failed", "timed_out"]')
    result_bytes: int = setting(0, "The largest result, as JSON, that is sent along; 0: none is")
    retry_s: float = pace(
        5.0, "When the second try is made, about; each further pause is three times as long, up to an hour"
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Hosts that a caller may name as endpoints of its own tasks, with any unusual port, or patterns"
        " (default: callers may name none)",
        example='["hooks.example.com", "*.lab.example:8443"]',
    )
    allow_http: bool = setting(
        False, "Whether an endpoint that a caller names may be one without TLS", example="true"
    )
    allow_private: bool = setting(
        False,
        "Whether an endpoint that a caller names may be in a private network or on this host",
        example="true",
    )

    @property
    def is_used(self) -> bool:
        """Return whether any webhook can be sent."""
        return bool(self.url or self.allowed_hosts)

    @property
    def keys(self) -> list[bytes]:
        """Signing keys; the first is the current one."""
        return [_key(text) for text in self.secret.split()]

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", tuple(self.states))
        object.__setattr__(self, "allowed_hosts", tuple(host.lower() for host in self.allowed_hosts))
        if unknown := set(self.states) - set(_ENDS):
            reason = f"{sorted(unknown)[0]!r} is no end of a task; the ends are {', '.join(_ENDS)}"
            raise ConfigError(setting="webhook.states", reason=reason)
        if self.url and (reason := unfit_url(self.url)):
            raise ConfigError(setting="webhook.url", reason=reason)
        if self.is_used and not self.secret:
            raise ConfigError(setting="webhook.secret", reason=f"messages must be signed; {_example()}")
        for text in self.secret.split():
            _key(text)


def unfit_url(url: str) -> str:
    """Return the reason why a URL cannot be an endpoint, without quoting it; empty if it can."""
    try:
        parts = urlsplit(url)
        named, _ = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https") or not named:
        return "it is no address of an endpoint; write for example https://lab.example/hook"
    if parts.username is not None:
        return "a user and a password in it would not be sent; the signature says who sends"
    return (
        "" if url.isascii() and url.isprintable() and " " not in url else "it has characters that no URL has"
    )


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_SECRET_PREFIX) or len(key) not in _SECRET_BYTES:
        raise ConfigError(setting="webhook.secret", reason=f"it is no secret for webhooks; {_example()}")
    return key


def _example() -> str:
    made = base64.b64encode(secrets.token_bytes(32)).decode()
    return f"write whsec_ and 24 to 64 random bytes in base64, such as these new ones: {_SECRET_PREFIX}{made}"
