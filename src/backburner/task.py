"""The records: what a task is made of. Frozen, and they import nothing of ours but states and retries."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .lifecycle import TERMINAL, State
from .limits import ToolLimits
from .retry import NO_RETRY, Retry

#: The owner of every task where nobody authenticates, as over stdio.
LOCAL_OWNER = "local"

#: Whether a task may run in a process that has run others (`warm`), wants a new one (`fresh`), or may run in
#: one that has run others if that has imported the app itself (`spawn`).
Isolation = Literal["warm", "fresh", "spawn"]
#: What a task's result is: the plain value that a function returned, or the whole `CallToolResult` that a
#: tool of an attached server gave.
ResultKind = Literal["value", "call_tool_result"]
#: What the client did with a question.
Action = Literal["accept", "decline", "cancel"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U; sorts by value
_CROCKFORD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", _ALPHABET.encode())
_TIME_CHARS, _RANDOM_CHARS = 10, 26
_RANDOM_BITS = 5 * _RANDOM_CHARS
_LAST_MS = 2 ** (5 * _TIME_CHARS) - 1
_ID_BYTES = 25  # base 32 turns five bytes into eight characters, so four characters are spare
_SPARE_BITS = 20
_TASK_ID = re.compile(rf"tsk_[{_ALPHABET}]{{{_TIME_CHARS + _RANDOM_CHARS}}}")
_BEGINNING = re.compile(rf"(?:tsk_)?([{_ALPHABET}]{{1,{_TIME_CHARS + _RANDOM_CHARS}}})", re.IGNORECASE)


def new_task_id(now_ms: int) -> str:
    """`tsk_`, the time (so that ids sort by age) and 130 random bits (so that they cannot be guessed)."""
    return _task_id(now_ms, secrets.randbits(_RANDOM_BITS))


def first_task_id(now_ms: int) -> str:
    """What no id of a task of that time, or of a later one, sorts before."""
    return _task_id(min(max(0, now_ms), _LAST_MS), 0)


def _task_id(ms: int, chance: int) -> str:
    number = (ms << _RANDOM_BITS | chance) << _SPARE_BITS
    chars = base64.b32encode(number.to_bytes(_ID_BYTES, "big"))[: _TIME_CHARS + _RANDOM_CHARS]
    return "tsk_" + chars.translate(_CROCKFORD).decode()


def ids_that_begin(text: str) -> tuple[str, str]:
    """The first and the last that a task id which begins so can be."""
    chars = len("tsk_") + _TIME_CHARS + _RANDOM_CHARS
    return text.ljust(chars, _ALPHABET[0]), text.ljust(chars, _ALPHABET[-1])


def time_of_id(task_id: str) -> int:
    """When a task was made, by the clock of its maker, in milliseconds."""
    ms = 0
    for char in task_id.removeprefix("tsk_")[:_TIME_CHARS]:
        ms = ms * len(_ALPHABET) + _ALPHABET.index(char)
    return ms


def is_task_id(text: str) -> bool:
    """Whether `text` has the form of a task id; says nothing about such a task being there."""
    return _TASK_ID.fullmatch(text) is not None


def beginning_of_id(text: str) -> str | None:
    """What ids begin with for which `text` is short: in capitals, `tsk_` put before it. None if none can."""
    found = _BEGINNING.fullmatch(text.removesuffix("…"))  # as a narrow list may show it
    return None if found is None else f"tsk_{found[1].upper()}"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one task may use. None means: no limit of its own."""

    max_runtime_s: float | None = None
    cpu: float | None = None
    memory_mb: int | None = None
    scratch_mb: int | None = None


@dataclass(frozen=True, slots=True)
class TaskError:
    """Why an attempt, or a task, did not succeed. `type` is stable; the rest is for people."""

    type: str
    message: str
    exception: str = ""
    details: str = ""
    data: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        parts = {"type": self.type, "message": self.message, "exception": self.exception}
        rest = {"details": self.details, "data": dict(self.data) if self.data else None}
        return {**parts, **{key: value for key, value in rest.items() if value}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskError:
        return cls(
            type=data["type"],
            message=data.get("message", ""),
            exception=data.get("exception", ""),
            details=data.get("details", ""),
            data=data.get("data"),
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task is. `percent` is 0 to 100; `step` of `step_total` where the tool counts."""

    percent: float | None = None
    step: float | None = None
    step_total: float | None = None
    phase: str | None = None
    message: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "percent": self.percent,
            "step": self.step,
            "step_total": self.step_total,
            "message": self.message,
            "context": dict(self.context),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Progress:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client said to a question. `content` is there only when it accepted."""

    action: Action
    content: Any = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"

    def to_dict(self) -> dict[str, Any]:
        return {"action": self.action, "content": self.content}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        return cls(data["action"], data.get("content"))


@dataclass(frozen=True, slots=True)
class Caller:
    """Who called, as a token said that was verified, and what else it claims. It is never kept itself."""

    client_id: str
    issuer: str | None = None
    subject: str | None = None
    scopes: tuple[str, ...] = ()
    claims: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        known = {
            "client_id": self.client_id,
            "issuer": self.issuer,
            "subject": self.subject,
            "scopes": list(self.scopes),
        }
        return {**known, "claims": dict(self.claims)} if self.claims else known

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Caller:
        return cls(
            data["client_id"],
            data.get("issuer"),
            data.get("subject"),
            tuple(data.get("scopes", ())),
            data.get("claims") or {},
        )


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task as submitted, validated, before a store has it.

    `target` says where a runner finds the tool, and `launch` what its server stood on. `hint_s` is
    the author's own estimate of the runtime and `estimate_s` the one that experience made of it; a
    guess is in neither. `answers` is what the client said to the tool's `ask_first`, before there was
    a task. `meta` is the caller's own. `limits` are those that its tool has for all its tasks, and
    `concurrency_key` says with which others this one counts. `webhooks_json` says who is told of the end:
    see webhooks/hooks.py. `handed_to` names the engine to whose queue its submitter gives it right away.
    """

    task_id: str
    owner: str
    tool_name: str
    inputs_json: str
    inputs_hash: str
    queue: str
    submitted_at: int
    expires_at: int | None
    target: str = ""
    launch: str = ""
    ttl_s: float | None = None
    priority: int = 0
    tags: tuple[str, ...] = ()
    share: str = ""
    resources: Resources = Resources()
    retry: Retry = Retry()
    idempotency_key: str | None = None
    external_id: str | None = None
    parent_id: str | None = None
    hint_s: float | None = None
    estimate_s: float | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    isolation: Isolation = "warm"
    result_kind: ResultKind = "value"
    answers: Mapping[str, Answer] = field(default_factory=dict)
    caller: Caller | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    limits: ToolLimits | None = None
    concurrency_key: str = ""
    webhooks_json: str | None = None
    handed_to: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One durable tool call, as the store has it. Times are milliseconds since the epoch.

    `inputs` and `result` are None in lists, where they are not loaded. `waits_for` is a sentence that says
    which limit holds a queued task. See NewTask for what its caller and its tool said.
    """

    seq: int
    task_id: str
    owner: str
    tool_name: str
    queue: str
    state: State
    priority: int
    submitted_at: int
    updated_at: int
    target: str = ""
    launch: str = ""
    attempt: int = 0
    failures: int = 0
    max_attempts: int = 1
    retry: Retry = NO_RETRY
    resources: Resources = Resources()
    inputs: dict[str, Any] | None = None
    tags: tuple[str, ...] = ()
    ttl_s: float | None = None
    idempotency_key: str | None = None
    external_id: str | None = None
    parent_id: str | None = None
    hint_s: float | None = None
    estimate_s: float | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    isolation: Isolation = "warm"
    result_kind: ResultKind = "value"
    answers: Mapping[str, Answer] = field(default_factory=dict)
    caller: Caller | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    ready_at: int | None = None
    waits_for: str | None = None
    started_at: int | None = None
    heartbeat_at: int | None = None
    completed_at: int | None = None
    expires_at: int | None = None
    timeout_at: int | None = None
    worker_id: str | None = None
    cancel_requested: bool = False
    cancel_reason: str | None = None
    progress: Progress | None = None
    result: Any = None
    error: TaskError | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class TaskHead:
    """What is cheap to know of a task: whose it is, where it is in its life, at which try, and since when."""

    task_id: str
    owner: str
    state: State
    attempt: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a task. `outcome` is None while it goes on."""

    task_id: str
    attempt: int
    worker_id: str
    claimed_at: int
    started_at: int | None = None
    heartbeat_at: int | None = None
    ended_at: int | None = None
    pid: int | None = None
    outcome: str | None = None
    error: TaskError | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a task's append-only audit trail."""

    seq: int
    task_id: str
    ts: int
    attempt: int
    signal: str
    from_state: State | None
    to_state: State
    worker_id: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a tool wrote. `seq` counts from 1 within the task."""

    seq: int
    ts: int
    stream: str
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a task made: immutable, known by its hash. `path` is relative to the tasks' folder."""

    artifact_id: str
    task_id: str
    attempt: int
    name: str
    kind: str
    size_bytes: int
    sha256: str
    path: str
    created_at: int


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A question of a running task. `key` is never used again within the task.

    `method` is the MCP request that the client will see, `elicitation/create` by default, and
    `params` are its parameters. `action` is accept, decline or cancel once it is answered.
    """

    task_id: str
    key: str
    attempt: int
    method: str
    params: Mapping[str, Any]
    asked_at: int
    answered_at: int | None = None
    action: str | None = None
    content: Any = None


@dataclass(frozen=True, slots=True)
class Worker:
    """One slot that runs one task at a time, as last seen."""

    worker_id: str
    supervisor_id: str
    host: str
    queue: str
    state: str
    started_at: int
    last_heartbeat: int
    pid: int | None = None
    current_task_id: str | None = None
