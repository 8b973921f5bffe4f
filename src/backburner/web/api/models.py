"""Parameters, request bodies and responses of the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from ...core.lifecycle import State
from ...service.operator import MAX_BULK, Action

Text = Annotated[str, Field(min_length=1, max_length=256)]
Time = Annotated[datetime, Field(description="ISO 8601, UTC without a zone")]
LineNumber = Annotated[int, Field(ge=0, lt=10**12)]
OwnerName = Annotated[Text | None, Field(description="Only for a role that sees all owners")]


class Input(BaseModel):
    """Query or body of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Output(BaseModel):
    """A response. Later releases may add fields."""

    model_config = ConfigDict(extra="allow")


def list_of(name: str, item: type[Output]) -> type[BaseModel]:
    """Return the model of a response with one list."""
    field: Any = (list[item], ...)  # type: ignore[valid-type]
    return create_model(f"{item.__name__}List", __base__=Output, **{name: field})


def in_ms(time: datetime | None) -> int | None:
    if time is None:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


# -- requests --------------------------------------------------------------------------------------


class TaskFilter(Input):
    """Tasks that match all given conditions."""

    state: list[State] = Field(default=[], description="Any of these")
    tool: Text | None = None
    queue: Text | None = None
    tag: list[Text] = Field(default=[], max_length=32, description="Any of these")
    owner: OwnerName = None
    parent: Text | None = Field(default=None, description="Tasks started by this one")
    id: Text | None = Field(default=None, description="Beginning of the id, with or without tsk_")
    text: Text | None = Field(
        default=None, description="Part of the tool's name, a tag, the external id or the error"
    )
    since: Time | None = Field(default=None, description="Submitted after this time")
    until: Time | None = Field(default=None, description="Submitted before this time")

    def filters(self) -> dict[str, Any]:
        """Return the arguments of `TaskRecords.tasks`."""
        return {
            "states": self.state,
            "tool_name": self.tool,
            "queue": self.queue,
            "tags_any": self.tag,
            "owner": self.owner,
            "parent_id": self.parent,
            "id_beginning": self.id,
            "text": self.text,
            "submitted_after": in_ms(self.since),
            "submitted_before": in_ms(self.until),
        }


class TaskListQuery(TaskFilter):
    sort: Literal["newest", "oldest"] = Field(default="newest", description="Sort order")
    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(
        default=None, max_length=2000, description="next_cursor or previous_cursor of a page"
    )

    def filters(self) -> dict[str, Any]:
        page = {"oldest_first": self.sort == "oldest", "limit": self.limit, "cursor": self.cursor}
        return {**super().filters(), **page}


class OwnerQuery(Input):
    owner: OwnerName = None


class StatisticsQuery(OwnerQuery):
    since: Time | None = None
    until: Time | None = None
    every_s: float = Field(default=60, ge=1, le=86_400 * 366)
    tool: Text | None = None
    queue: Text | None = None


class ClientQuery(Input):
    name: Text | None = Field(default=None, description="Only this client")


class LogStreamQuery(Input):
    after: LineNumber = Field(default=0, description="Number of the last known line")


class LogQuery(LogStreamQuery):
    offset: LineNumber = Field(default=0, description="Number of known characters of the next line")
    limit: int = Field(default=200, ge=1, le=5000)


class EventsQuery(Input):
    after: Annotated[str, Field(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$")] | None = Field(
        default=None, description="Id of the last known event. Last-Event-ID takes precedence"
    )


class Submission(Input):
    tool: Text
    inputs: dict[str, Any] = {}
    queue: Text | None = None
    priority: int = Field(default=0, ge=-1000, le=1000)
    ttl_s: float | None = Field(default=None, gt=0, description="Retention after the task has ended")
    max_runtime_s: float | None = Field(default=None, gt=0)
    tags: list[Text] = Field(default=[], max_length=32)
    idempotency_key: Text | None = None
    parent: Text | None = None


class Cancellation(Input):
    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


class Retry(Input):
    inputs: dict[str, Any] | None = Field(
        default=None, description="With inputs, a new task is created; without, this task runs again"
    )


class Answer(Input):
    action: Literal["accept", "decline", "cancel"]
    content: Any = None


class Answers(Input):
    answers: dict[Text, Answer] = Field(min_length=1)


class BulkAction(Input):
    action: Action
    filter: TaskFilter
    dry_run: bool = Field(default=False, description="Only count matching tasks")
    limit: int = Field(default=MAX_BULK, ge=1, le=MAX_BULK)


# -- tasks -----------------------------------------------------------------------------------------


class Progress(Output):
    percent: float | None
    step: float | None
    step_total: float | None
    phase: str | None
    message: str | None


class Question(Output):
    """A question of a task; `schema` describes the content of an answer."""

    key: str
    message: str | None
    schema_: dict[str, Any] | None = Field(alias="schema")


class Task(Output):
    task_id: str
    owner: str
    tool_name: str
    queue: str
    state: State
    priority: int
    tags: list[str]
    attempt: int
    max_attempts: int
    submitted_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    expires_at: datetime | None
    progress: Progress | None
    error: dict[str, Any] | None
    waits_for: str | None
    position: int | None
    eta_s: float | None
    questions: list[Question]


class TaskList(Output):
    tasks: list[Task]
    next_cursor: str | None
    previous_cursor: str | None


class TaskWithInputs(Task):
    """`inputs` has secrets masked; null if the tool, which declares its secrets, is unknown."""

    inputs: dict[str, Any] | None
    created: bool


class Attempt(Output):
    attempt: int
    worker_id: str
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    error: dict[str, Any] | None


class Event(Output):
    seq: int
    ts: datetime
    attempt: int
    signal: str
    from_state: State | None
    to_state: State
    detail: dict[str, Any]


class WholeTask(TaskWithInputs):
    attempts: list[Attempt]
    events: list[Event]
    all_questions: list[Question]


class Artifact(Output):
    artifact_id: str
    attempt: int
    created_at: datetime
    name: str
    kind: str
    size_bytes: int
    sha256: str
    download_url: str | None = Field(description="Signed; needs no token and supports ranges")
    expires_at: datetime | None


class Artifacts(Output):
    task_id: str
    artifacts: list[Artifact]


class Result(Output):
    task_id: str
    state: State
    result: Any
    error: dict[str, Any] | None
    artifacts: list[Artifact]
    completed_at: datetime | None


class BulkResult(Output):
    """Counts of a bulk action. `left_alone`: tasks that changed meanwhile. `more`: call again."""

    action: Action
    dry_run: bool
    matched: int
    done: int
    left_alone: list[str]
    more: bool


class LogLine(Output):
    """`message` starts at character `offset` of a line of `length` characters."""

    seq: int
    ts: datetime
    stream: str
    level: str
    message: str
    offset: int
    length: int


class LogPage(Output):
    task_id: str
    lines: list[LogLine]
    next_after: int
    next_offset: int
    more: bool


class Problem(Output):
    """RFC 9457, with a stable error `code` and the values of its message."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    details: dict[str, Any]


# -- the server ------------------------------------------------------------------------------------


class Me(Output):
    owner: str
    role: Literal["read", "operate", "read-all", "operate-all"]
    steers_queues: bool


class Queue(Output):
    queue: str
    queued: int
    running: int
    workers: int
    max_length: int | None
    paused_at: datetime | None


class Worker(Output):
    """`current_task_id` and machine fields are null where the role may not see them."""

    worker_id: str
    queue: str
    state: str
    alive: bool
    current_task_id: str | None
    host: str | None
    pid: int | None
    last_heartbeat: datetime | None


class Supervisor(Output):
    """`trouble` tells why no tasks run. Machine fields are null where the role may not see them."""

    state: Literal["absent", "starting", "working", "stopped", "silent"]
    trouble: str | None
    pid: int | None
    version: str | None
    since_at: datetime | None


class Client(Output):
    name: str
    version: str
    transport: str
    wall_s: float | None
    idle_s: float | None
    source: str
    time_outs: int


class Forgotten(Output):
    forgotten: int


class Delivery(Output):
    webhook_id: str
    task_id: str
    endpoint: str
    attempts: int
    created_at: datetime
    next_at: datetime | None
    given_up: bool
    last_error: str


class WebhookRetry(Output):
    """`retried` is false if there is no such delivery."""

    webhook_id: str
    retried: bool


class Tool(Output):
    tool_name: str
    description: str
    queue: str
    max_runtime_s: float | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None


class Runtimes(Output):
    """Durations of a tool's latest successful runs."""

    tool_name: str
    runs: int
    median_s: float
    p95_s: float


class States(Output):
    states: dict[State, int]


class Histogram(Output):
    """`counts`: number below each of `bounds_s`, and above the last."""

    counts: list[int]
    half_within_s: float | None
    most_within_s: float | None = Field(description="95th percentile")


class Totals(Output):
    ended: dict[State, int]
    wait: Histogram
    run: Histogram


class Interval(Totals):
    since: datetime


class Statistics(Output):
    since: datetime
    until: datetime
    every_s: float
    bounds_s: list[float]
    total: Totals
    stretches: list[Interval]


class Overview(States):
    queues: list[Queue]
    workers: list[Worker]
    statistics: Statistics
