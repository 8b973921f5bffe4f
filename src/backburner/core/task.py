"""Task records and task ids. They import no other layer."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypedDict

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import asdict

from . import json_text
from .lifecycle import TERMINAL, State
from .limits import ToolLimits
from .retry import Retry

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


class Resources(Struct, frozen=True):
    """Resource limits of one task. None means no limit of its own."""

    max_runtime_s: float | None = None
    cpu: float | None = None
    memory_mb: int | None = None
    scratch_mb: int | None = None


class TaskError(Struct, frozen=True):
    """Reason why an attempt, or a task, did not succeed. `type` is stable; the rest is for people."""

    type: str
    message: str = ""
    exception: str = ""
    details: str = ""
    data: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        said = to_builtins(self)
        return {name: value for name, value in said.items() if value or name not in ("details", "data")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskError:
        return convert(data, cls)


class Progress(Struct, frozen=True):
    """Progress of a task. `percent` is 0 to 100; `step` of `step_total` where the tool counts."""

    percent: float | None = None
    step: float | None = None
    step_total: float | None = None
    phase: str | None = None
    message: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Progress:
        return cls(**data)  # not `convert`, which turns a step of 3 into 3.0


class Answer(Struct, frozen=True):
    """A client's answer to a question. `content` is set only when the client accepted."""

    action: Action
    content: Any = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        return convert(data, cls)


class Caller(Struct, frozen=True):
    """The authenticated caller, as its verified token describes it. The token itself is never stored."""

    client_id: str
    issuer: str | None = None
    subject: str | None = None
    scopes: tuple[str, ...] = ()
    claims: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.client_id, self.issuer, self.subject, self.scopes))

    def to_dict(self) -> dict[str, Any]:
        said = {**asdict(self), "scopes": list(self.scopes), "claims": dict(self.claims)}
        return {name: value for name, value in said.items() if value or name != "claims"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Caller:
        return convert(data, cls)


class RequestedFields(Struct, frozen=True, kw_only=True):
    """Fields of a task that its caller gives and that stay as they are.

    `answers` are the client's answers to the tool's `ask_first`. `caller` is for the tool to see: it gives no
    rights.
    """

    owner: str = LOCAL_OWNER
    priority: int = 0
    ttl_s: float | None = None
    idempotency_key: str | None = None
    external_id: str | None = None
    parent_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    caller: Caller | None = None


class TaskOptions(TypedDict, total=False):
    """Keyword arguments of `submit`: the fields of `requests.TaskRequest` beside the tool and its inputs."""

    owner: str
    queue: str | None
    priority: int
    ttl_s: float | None
    idempotency_key: str | None
    external_id: str | None
    parent_id: str | None
    tags: Sequence[str]
    resources: Resources | None
    traceparent: str | None
    tracestate: str | None
    answers: Mapping[str, Answer]
    caller: Caller | None
    meta: Mapping[str, Any] | None
    webhook: Mapping[str, Any] | None


class SubmittedFields(RequestedFields, frozen=True, kw_only=True):
    """Fields of a task that are set when it is submitted and never change.

    `target` says where a runner finds the tool, and `launch` names the environment of its server. `hint_s` is
    the author's own estimate of the runtime and `estimate_s` the one learned from earlier runs. `meta` is
    the caller's own.
    """

    task_id: str
    tool_name: str
    queue: str
    submitted_at: int
    target: str = ""
    launch: str = ""
    tags: tuple[str, ...] = ()
    retry: Retry = Retry()
    resources: Resources = Resources()
    hint_s: float | None = None
    estimate_s: float | None = None
    isolation: Isolation = "warm"
    result_kind: ResultKind = "value"
    meta: Mapping[str, Any] = field(default_factory=dict)


class NewTask(SubmittedFields, frozen=True, kw_only=True, omit_defaults=True):
    """A validated task that is not in a store yet.

    `limits` apply to all tasks of its tool, and tasks with the same `concurrency_key` count together.
    `webhooks_json` holds the endpoints that are notified of the end (see store/webhooks.py). `handed_to`
    names the engine to whose queue the submitter gives the task itself.
    """

    inputs_json: str
    inputs_hash: str
    share: str = ""
    limits: ToolLimits | None = None
    concurrency_key: str = ""
    webhooks_json: str | None = None
    handed_to: str = ""

    @property
    def expires_at(self) -> int | None:
        """Time of expiry if the task does not start before; None without a time to live."""
        return None if self.ttl_s is None else self.submitted_at + int(self.ttl_s * 1000)


class Task(SubmittedFields, frozen=True, kw_only=True):
    """One durable tool call as stored. Times are milliseconds since the epoch.

    `inputs` and `result` are None in lists, where they are not loaded. `waits_for` is a sentence that names
    the limit that holds a queued task. `expires_at` is `ttl_s` after submission before the first start, None
    while the task runs, and `ttl_s` after its end or the end of its last attempt from then on.
    `attempt` counts leases, of which `unstarted` were handed back before the tool began.
    """

    seq: int
    state: State
    updated_at: int
    attempt: int = 0
    unstarted: int = 0
    failures: int = 0
    max_attempts: int = 1
    inputs: dict[str, Any] | None = None
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

    @property
    def tries(self) -> int:
        """The number of the attempt, as it is shown: without leases that were handed back unstarted."""
        return self.attempt - self.unstarted

    @property
    def retention_ms(self) -> int | None:
        """Milliseconds from submission to expiry; None where there is no expiry, as while the task runs."""
        return None if self.expires_at is None else self.expires_at - self.submitted_at


class Submission(Struct, frozen=True):
    """Result of a submission. `position` is the task's place in its queue, from 1."""

    task: Task
    created: bool
    position: int | None


def as_submitted(new: NewTask, seq: int, leased: Mapping[str, Any] = MappingProxyType({})) -> Task:
    """Return the stored task that `new` becomes; `leased` holds the fields that a lease sets at once."""
    given = {name: getattr(new, name) for name in SubmittedFields.__struct_fields__}
    given |= {
        "seq": seq,
        "state": State.QUEUED,
        "updated_at": new.submitted_at,
        "max_attempts": new.retry.max_attempts,
        "inputs": json_text.decode(new.inputs_json),
        "expires_at": new.expires_at,
    }
    return Task(**{**given, **leased})


class TaskHead(Struct, frozen=True):
    """The fields of a task that are cheap to read."""

    task_id: str
    owner: str
    state: State
    attempt: int
    updated_at: int


class Attempt(Struct, frozen=True):
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


class Event(Struct, frozen=True):
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


class LogLine(Struct, frozen=True):
    """One line that a tool wrote. `seq` counts from 1 within the task."""

    seq: int
    ts: int
    stream: str
    level: str
    message: str


class Artifact(Struct, frozen=True):
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


class InputRequest(Struct, frozen=True):
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


class Worker(Struct, frozen=True):
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
    """Return the id before which no id of a task of that time, or of a later one, sorts."""
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
    """Return the creation time in a task id, in milliseconds."""
    ms = 0
    for char in task_id.removeprefix("tsk_")[:_TIME_CHARS]:
        ms = ms * len(_ALPHABET) + _ALPHABET.index(char)
    return ms


def is_task_id(text: str) -> bool:
    """Return whether `text` has the form of a task id."""
    return _TASK_ID.fullmatch(text) is not None


def beginning_of_id(text: str) -> str | None:
    """Return the prefix of task ids that `text` abbreviates, in upper case with `tsk_`, or None."""
    found = _BEGINNING.fullmatch(text.removesuffix("…"))  # as a narrow list may show it
    return None if found is None else f"tsk_{found[1].upper()}"
