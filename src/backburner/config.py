"""Settings: from arguments, the environment (`BACKBURNER_*`) and `backburner.toml`, in that order."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .times import duration_s


@dataclass(frozen=True, slots=True)
class Queue:
    """A resource class: how many workers this host gives it, and how many tasks may wait in it."""

    workers: int = 2
    max_length: int = 10_000


def _default_queues() -> dict[str, Queue]:
    cpus = os.cpu_count() or 1
    return {
        "cpu_small": Queue(workers=max(2, cpus)),
        "cpu_standard": Queue(workers=max(2, cpus)),
        "cpu_heavy": Queue(workers=1),
        "gpu_small": Queue(workers=1),
    }


def _setting(default: Any, help: str) -> Any:
    if callable(default):
        return field(default_factory=default, metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """Every setting there is. A time may be written as seconds or as text such as `30s` or `4h`."""

    store: str = _setting(
        "", "Where tasks are kept: sqlite:///file.db or postgresql://… (default: a file of its own)"
    )
    target: str = _setting(
        "", "The app that the command line works with, when it is not told: lab.py or package.module:bb"
    )
    synchronous: str = _setting(
        "full", "SQLite: full survives a power cut, normal only the death of processes"
    )
    engine: str = _setting("local", "Who starts the work: local")
    data_dir: str = _setting("", "Where task folders and artifacts are (default: beside the SQLite file)")
    queues: dict[str, Queue] = _setting(_default_queues, "Workers and length cap of each queue on this host")
    default_queue: str = _setting("cpu_standard", "The queue of tools that name none")
    fair_share: str = _setting("", "Share a queue fairly by `owner`, or by a tag prefix such as `project:`")
    ttl_s: float = _setting(7 * 86400.0, "How long a task is kept after its submission, when nobody says")
    max_ttl_s: float = _setting(90 * 86400.0, "The longest time to live that a caller may ask for")
    purge_after_s: float = _setting(86400.0, "How long an expired task's bare record is kept")
    pack_logs_after_s: float = _setting(3600.0, "When the logs of a finished task are compressed")
    max_input_bytes: int = _setting(1_048_576, "The largest inputs of one task, as JSON")
    max_result_bytes: int = _setting(262_144, "A larger result becomes an artifact with a preview")
    max_log_bytes: int = _setting(67_108_864, "What one attempt may log; the rest is dropped, with a note")
    max_runtime_s: float = _setting(86400.0, "The time limit of a task that names none")
    heartbeat_s: float = _setting(2.0, "How often a supervisor says that its workers are alive")
    lease_grace_s: float = _setting(30.0, "When a worker of another host without heartbeat counts as lost")
    cancel_grace_s: float = _setting(5.0, "How long a cancelled or overdue tool has before it is killed")
    drain_grace_s: float = _setting(30.0, "How long a supervisor that is told to stop waits for its tasks")
    idle_exit_s: float = _setting(300.0, "When a supervisor without work leaves; 0: never")
    keeper_interval_s: float = _setting(5.0, "How often the keeper sweeps")
    max_tasks_per_runner: int = _setting(1000, "When a runner is replaced by a new one")
    task_tools: str = _setting("on", "Whether servers list the task tools (submit_task and so on): on or off")
    task_tools_prefix: str = _setting("", "Put before the names of the task tools")
    patience_s: float = _setting(
        50.0,
        "How long a plain call is held before the client gets a handle (default: by its name; else 50 s)",
    )
    client_patience: str = _setting(
        "", "How long to hold calls of named clients, such as `cursor*=50s, my-host@2.*=forever`"
    )
    announce_jobs: str = _setting(
        "declared",
        "Who is notified of how a job goes on: `declared` (clients that say they can take it) or `all`",
    )
    progress_silence_s: float = _setting(30.0, "When a progress token that nobody uses is forgotten")
    state_dir: str = _setting(
        "", "Where the prompt log and the task file of the TaskId contract are (default: as data_dir)"
    )
    ui_prompt_file: str = _setting("ui-prompts.jsonl", "The name of the prompt log in state_dir")
    state_file: str = _setting("mcp_tasks.v1.json", "The name of the task file in state_dir")
    public_url: str = _setting("", "The address of the HTTP server as clients see it, for artifact links")
    artifact_link_s: float = _setting(86400.0, "How long a signed artifact link works")
    auth_tokens: str = _setting("", "HTTP: a file of named, hashed bearer tokens")
    auth_jwt_key: str = _setting("", "HTTP: a shared secret, or a file with a PEM key, that signs JWTs")
    auth_jwks: str = _setting("", "HTTP: a file or URL with the JSON Web Key Set that signs JWTs")
    auth_issuer: str = _setting("", "HTTP: the issuer that a JWT must name")
    auth_audience: str = _setting("", "HTTP: the audience that a JWT must name")
    allow_anonymous: str = _setting("off", "HTTP: on lets a server without tokens listen beyond this host")
    allowed_hosts: str = _setting("", "HTTP: more Host names to answer to, separated by commas")

    def __post_init__(self) -> None:
        for name in ("task_tools", "allow_anonymous"):
            if getattr(self, name) not in ("on", "off"):
                raise ConfigError(setting=name, reason=f"{getattr(self, name)!r} is neither on nor off")
        if self.announce_jobs not in ("declared", "all"):
            raise ConfigError(
                setting="announce_jobs", reason=f"{self.announce_jobs!r} is neither declared nor all"
            )
        if self.synchronous not in ("full", "normal"):
            raise ConfigError(
                setting="synchronous", reason=f"{self.synchronous!r} is neither full nor normal"
            )
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
        environment = os.environ if environment is None else environment
        chosen = _from_file(Path(file or environment.get("BACKBURNER_CONFIG", "backburner.toml")), bool(file))
        for entry in dataclasses.fields(cls):
            text = environment.get(f"BACKBURNER_{entry.name.upper()}")
            if text is not None:
                chosen[entry.name] = text
        chosen.update({key: value for key, value in (arguments or {}).items() if value is not None})
        chosen.setdefault("store", default_store(name, environment))
        if chosen.get("state_dir"):  # the supervisor, which has another working folder, must find it too
            chosen["state_dir"] = str(Path(str(chosen["state_dir"])).expanduser().absolute())
        known = {entry.name for entry in dataclasses.fields(cls)}
        for key in chosen:
            if key not in known:
                raise ConfigError(
                    setting=key, reason=f"there is no such setting; known: {', '.join(sorted(known))}"
                )
        return cls(**{key: _read(key, value) for key, value in chosen.items()})

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return cls(**{key: _read(key, value) for key, value in json.loads(text).items()})


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


def _from_file(path: Path, must_exist: bool) -> dict[str, Any]:
    if not path.exists():
        if must_exist:
            raise ConfigError(setting="config", reason=f"there is no file {path}")
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(setting="config", reason=f"{path} is not valid TOML: {error}") from error


def _read(name: str, value: Any) -> Any:
    """A setting's value from what an argument, the environment or the file gave."""
    default = next(entry for entry in dataclasses.fields(Settings) if entry.name == name).default
    if name == "queues":
        return _read_queues(value)
    if name.endswith("_s"):
        return duration_s(value, name)
    if isinstance(default, int):
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ConfigError(setting=name, reason=f"{value!r} is not a whole number") from None
        if number < 0:
            raise ConfigError(setting=name, reason=f"{number} is negative")
        return number
    if not isinstance(value, str):
        raise ConfigError(setting=name, reason=f"{value!r} is not text")
    return value


def _read_queues(value: Any) -> dict[str, Queue]:
    """The default queues, with what is given put over them."""
    try:
        given = json.loads(value) if isinstance(value, str) else dict(value)
        read = {
            name: queue
            if isinstance(queue, Queue)
            else Queue(**queue)
            if isinstance(queue, Mapping)
            else Queue(queue)
            for name, queue in given.items()
        }
    except (TypeError, ValueError, AttributeError) as error:
        reason = f'{error}; write for example {{"cpu_heavy": {{"workers": 2, "max_length": 100}}}}'
        raise ConfigError(setting="queues", reason=reason) from None
    for name, queue in read.items():
        if not all(isinstance(number, int) for number in (queue.workers, queue.max_length)):
            raise ConfigError(setting=f"queues.{name}", reason="workers and max_length are whole numbers")
    return {**_default_queues(), **read}
