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
    """Declare an interval that only tests change; the reference leaves it out."""
    return field(default=default, metadata={"help": help, "example": "", "is_pace": True})


@dataclass(frozen=True, slots=True)
class Queue:
    """A resource class: its number of workers on this host, and the most tasks that wait in it.

    `engine` is the engine that starts its tasks; empty: the app's.
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

    format: Literal["text", "json"] = setting("text", "Format of log lines: `text` or `json`")
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "Lowest level that is logged: `debug`, `info`, `warning` or `error`"
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

    ttl_s: float = setting(7 * 86400.0, "Time for which a finished task is kept")
    max_ttl_s: float = setting(90 * 86400.0, "The longest `ttl_s` that a caller may ask for")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits per task, and on the number of running tasks and of starts per minute."""

    max_input_bytes: int = setting(1_048_576, "The largest inputs of one task, as JSON")
    max_log_bytes: int = setting(
        67_108_864, "The largest log of one attempt; the rest is dropped, with a note"
    )
    max_runtime_s: float = setting(
        86400.0, "Time limit of tasks whose tool has no `timeout`, and the most that a caller may ask for"
    )
    max_memory_mb: int | None = setting(
        None, "The most memory of one task, also where tool or caller ask for more", example="4096"
    )
    max_scratch_mb: int | None = setting(
        None, "The most scratch space of one task, also where tool or caller ask for more", example="10000"
    )
    max_cpu: float | None = setting(
        None, "The most CPUs of one task, also where tool or caller ask for more", example="2"
    )
    max_running_per_owner: int | None = setting(
        None, "The most tasks of one owner that run at a time; others wait as `queued`", example="4"
    )
    max_starts_per_minute_per_owner: int | None = setting(
        None, "The most tasks of one owner that start in a minute", example="60"
    )
    tools: Mapping[str, ToolLimits] = setting(
        dict,
        "Limits by tool name or pattern: tasks that run at a time (`max_running`), with one key "
        "(`max_running_per_key`), and starts in a minute (`max_starts_per_minute`). The first match "
        "applies; a number alone is `max_running`. The lower of these and the tool's own limits "
        "applies",
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
        30.0, "Time without a heartbeat after which a supervisor's leases are lost and its runners ended"
    )
    cancel_grace_s: float = setting(5.0, "Time that a cancelled or overdue tool has before it is killed")
    drain_grace_s: float = setting(30.0, "Time that a supervisor which was told to stop waits for its tasks")
    idle_exit_s: float = setting(300.0, "Time without work after which a supervisor exits; 0: never")
    import_timeout_s: float = setting(300.0, "The longest import of an app")
    keeper_interval_s: float = pace(5.0, "How often the keeper sweeps")
    max_tasks_per_runner: int = setting(1000, "Number of tasks after which a runner is replaced")
    runner_idle_exit_s: float = pace(
        60.0,
        "When a runner without work ends; of each queue, as many as there are CPUs stay, and at least 4. 0:"
        " none ends",
    )
    environment: Literal["submitter", "own"] = setting(
        "submitter",
        "Environment, arguments and Python of a task: `submitter` (those of the process that "
        "submitted it on this host) or `own` (those of the supervisor)",
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
        "Default of the tool option `isolation`: `warm` (a process serves one owner until a task "
        "changes it), `fresh` (each task has its own) or `spawn` (as `warm`, but each process imports"
        " the app itself; see explanation/isolation.md)",
    )
    no_new_privileges: bool = setting(
        False, "Keeps programs that a tool starts from gaining privileges, also sudo and ping", example="true"
    )
    users: str = setting(
        "",
        "Users that tools run as, if the supervisor is root: a name, or a range of numbers such as "
        "`61000-61099`, one for each worker",
    )
    network: Literal["host", "none"] = setting(
        "host", "`none` leaves tools only a private loopback interface"
    )
    files: Literal["host", "task"] = setting(
        "host",
        "`task` lets tools write only to the folder of their task, and read neither the store nor the"
        " folders of other tasks",
    )
    writable: tuple[str, ...] = setting(
        (), 'Further folders that tools may write to with `files = "task"`', example='["/srv/results"]'
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
        "Lists the task tools (submit_task and so on); `few`: only wait_for_task, get_task_result and"
        " cancel_task, and answer_task where a tool asks anyone",
        example='"few"',
    )
    answer: Literal["auto", "hold", "handle"] = setting(
        "auto",
        "Default of the tool option `answer`, for clients without tasks: `auto`, `hold` (the call "
        "stays open to its end) or `handle` (a job id at once, then progress and the result as "
        "notifications)",
        example="handle",
    )
    patience_s: float | None = setting(
        None,
        "Time for which a call is held before the client gets a handle (default: by client; an"
        " unknown client is held to the end)",
    )
    client_patience: Mapping[str, float | Literal["forever"]] = setting(
        dict,
        "The same by client `name` or `name@version`; the first match applies",
        example='{"cursor*": "50s", "my-host@2.*": "forever"}',
    )
    task_grace_s: float | None = setting(
        None,
        "Time for which a call of a client with the 2026-07-28 tasks is held before it becomes a task, unless"
        " it is known to take longer; 0: every call becomes one at once (default: up to 5 s for hosts whose"
        " model spends a turn on each task, such as Claude Code; 0 for others)",
        example="3s",
    )
    result_tokens: int = setting(
        20_000,
        "The longest result that is sent whole, in tokens of four bytes; of a longer one the client "
        "gets both ends, its shape and ways to read the rest; 0: any length",
        example="50000",
    )
    client_result_tokens: Mapping[str, int | Literal["any"]] = setting(
        dict,
        "The same by client `name` or `name@version`; the first match applies",
        example='{"small-host": 5000, "my-program@2.*": "any"}',
    )
    on_cancel: Literal["cancel", "detach"] = setting(
        "cancel",
        "Default of the tool option `on_cancel`, for a held call that its client cancels: `cancel`, "
        "or `detach` (the task continues). A timeout of a client never cancels",
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
        "Message in the chat when a task ends whose handle went there: `off`, or `claude-channel` for"
        " Claude Code (see the guide on webhooks)",
    )
    card: bool = setting(
        True,
        "Shows calls of slow tools on a card, with progress, log and buttons, in clients that support"
        " MCP Apps",
        example="false",
    )
    card_tells: Literal["context", "message", "nothing"] = setting(
        "context",
        "Report of a card to the model when a task ends whose result no call has returned: `context` (the"
        " result, for the next turn), `message` (the same, and a message in the chat that begins a turn) or"
        " `nothing`",
    )
    kept_headers: tuple[str, ...] = setting(
        ("*",),
        "Request headers that are stored with a task for the tools of an attached server, by name or "
        "pattern. One that looks like a secret must be named in full; Authorization and Cookie are "
        "never stored",
        example='["x-team", "x-api-key"]',
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept_headers", tuple(self.kept_headers))
        for name in CLIENT_TABLES:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


@dataclass(frozen=True, slots=True)
class TaskIdSettings:
    """Files of the TaskId contract."""

    state_dir: str = setting("", "The folder of the prompt log and the task file (default: `data_dir`)")
    state_roots: tuple[str, ...] = setting(
        (),
        "Folders below which a call over HTTP may name its own `stateDir`; over stdio it may name any",
        example='["/home/ann/.chatos"]',
    )
    ui_prompt_file: str = setting("ui-prompts.jsonl", "The name of the prompt log in `state_dir`")

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
        "", "A file of named, hashed bearer tokens (default: `tokens` in the data folder, if it exists)"
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
        "The public address of the server, for artifact links (default: the address of each request)",
    )
    artifact_link_s: float = setting(86400.0, "Lifetime of signed artifact links")
    allowed_hosts: tuple[str, ...] = setting(
        (), "Further Host names that the server answers to", example='["lab.example"]'
    )
    allow_anonymous: bool = setting(
        False, "Lets a server without tokens listen beyond this machine", example="true"
    )
    dashboard: bool = setting(True, "Serves the dashboard at `/`")
    worker_door: bool = setting(
        False,
        "Lets workers with a token for one task (`backburner token task`) run it through this server,"
        " without access to the store",
        example="true",
    )
    max_connections: int = setting(1000, "The most connected clients; others get 503")
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
        "The storage of artifacts: s3://bucket/prefix, or file:///folder shared by all hosts "
        "(default: `data_dir` on the host that ran the task)",
        example='"s3://lab-artifacts/backburner"',
    )
    endpoint: str = setting(
        "",
        "The server of an S3-compatible storage (default: AWS, or AWS_ENDPOINT_URL_S3)",
        example='"https://minio.lab.example"',
    )
    links: Literal["server", "storage"] = setting(
        "server",
        "Download links: of the `server`, which reads the storage for clients, or signed links of the"
        " `storage` itself, which clients must be able to reach",
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
        "", "The endpoint that is notified of finished tasks", example='"https://lab.example/hook"'
    )
    secret: str = setting(
        "",
        "The signing secret: `whsec_` and 24 to 64 random bytes in base64. Two secrets, separated by "
        "a blank, both sign each message, for a change of secrets",
    )
    states: tuple[str, ...] = setting(
        _ENDS, "Final states that `url` is notified of", example='["failed", "timed_out"]'
    )
    result_bytes: int = setting(0, "The largest result, as JSON, that a message includes; 0: none")
    retry_s: float = pace(
        5.0, "When the second try is made, about; each further pause is three times as long, up to an hour"
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Hosts, or patterns, that a caller may name as endpoints of its own tasks, with any unusual "
        "port (default: none)",
        example='["hooks.example.com", "*.lab.example:8443"]',
    )
    allow_http: bool = setting(False, "Allows endpoints of callers without TLS", example="true")
    allow_private: bool = setting(
        False,
        "Allows endpoints of callers in private networks and on this machine",
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
