"""What goes over the wire about tasks: parameters, bodies and answers, and so the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...lifecycle import State
from ..steering import MOST_AT_ONCE, Action

Text = Annotated[str, Field(min_length=1, max_length=256)]
Time = Annotated[datetime, Field(description="ISO 8601; without a zone it is UTC")]
Line = Annotated[int, Field(ge=0, lt=10**12)]


class Given(BaseModel):
    """What a caller gives: nothing that is not known is passed over."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """What a caller gets: more may come with later releases."""

    model_config = ConfigDict(extra="allow")


class TaskFilter(Given):
    """Which tasks; those that fit all that is said."""

    state: list[State] = Field(default=[], description="Any of these")
    tool: Text | None = None
    queue: Text | None = None
    tag: list[Text] = Field(default=[], max_length=32, description="Any of these")
    owner: Text | None = Field(default=None, description="Only for a role that sees all owners")
    parent: Text | None = Field(default=None, description="Tasks that this one started")
    id: Text | None = Field(default=None, description="How the id begins, with tsk_ or without")
    text: Text | None = Field(
        default=None, description="In the tool's name, a tag, the external id or the error"
    )
    since: Time | None = Field(default=None, description="Submitted after then")
    until: Time | None = Field(default=None, description="Submitted before then")

    def chosen(self) -> dict[str, Any]:
        """As `Reading.tasks` takes it."""
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


class ListTasks(TaskFilter):
    sort: Literal["newest", "oldest"] = Field(default="newest", description="Which come first")
    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(
        default=None, max_length=2000, description="next_cursor or previous_cursor of a page"
    )


class Progress(Shown):
    percent: float | None
    step: float | None
    step_total: float | None
    phase: str | None
    message: str | None


class Question(Shown):
    """What a task wants to know: `schema` is that of the answer's content."""

    key: str
    message: str | None
    schema_: dict[str, Any] | None = Field(alias="schema")


class Task(Shown):
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


class TaskList(Shown):
    tasks: list[Task]
    next_cursor: str | None
    previous_cursor: str | None


class Attempt(Shown):
    attempt: int
    worker_id: str
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str | None
    error: dict[str, Any] | None


class Event(Shown):
    seq: int
    ts: datetime
    attempt: int
    signal: str
    from_state: State | None
    to_state: State
    detail: dict[str, Any]


class TaskWithInputs(Task):
    """`inputs` has secrets hidden; it is null where the tool, which says what is secret, is not known."""

    inputs: dict[str, Any] | None
    created: bool


class WholeTask(TaskWithInputs):
    attempts: list[Attempt]
    events: list[Event]
    all_questions: list[Question]


class Artifact(Shown):
    artifact_id: str
    attempt: int
    created_at: datetime
    name: str
    kind: str
    size_bytes: int
    sha256: str
    download_url: str | None = Field(description="Signed, works without a token, takes ranges")
    expires_at: datetime | None


class Artifacts(Shown):
    task_id: str
    artifacts: list[Artifact]


class Result(Shown):
    task_id: str
    state: State
    result: Any
    error: dict[str, Any] | None
    artifacts: list[Artifact]
    completed_at: datetime | None


class Submit(Given):
    tool: Text
    inputs: dict[str, Any] = {}
    queue: Text | None = None
    priority: int = Field(default=0, ge=-1000, le=1000)
    ttl_s: float | None = Field(default=None, gt=0, description="Seconds that the task is kept after its end")
    max_runtime_s: float | None = Field(default=None, gt=0, description="How long it may run")
    tags: list[Text] = Field(default=[], max_length=32)
    idempotency_key: Text | None = None
    parent: Text | None = None


class Cancel(Given):
    reason: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


class Retry(Given):
    inputs: dict[str, Any] | None = Field(
        default=None, description="With these, a new task is made; without, this one runs once more"
    )


class Answer(Given):
    action: Literal["accept", "decline", "cancel"]
    content: Any = None


class Answers(Given):
    answers: dict[Text, Answer] = Field(min_length=1)


class Bulk(Given):
    action: Action
    filter: TaskFilter
    dry_run: bool = Field(default=False, description="Only count what would be acted on")
    limit: int = Field(default=MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE)


class Acted(Shown):
    """What came of it. `left_alone` are those that changed meanwhile; `more` says to ask once more."""

    action: Action
    dry_run: bool
    matched: int
    done: int
    left_alone: list[str]
    more: bool


class ReadLog(Given):
    after: Line = Field(default=0, description="The number of the last line that is known")
    offset: Line = Field(default=0, description="How many characters of the next line are known")
    limit: int = Field(default=200, ge=1, le=5000)


class LogLine(Shown):
    """`message` is a line of `length` characters, from `offset` on: all of it, unless it is huge."""

    seq: int
    ts: datetime
    stream: str
    level: str
    message: str
    offset: int
    length: int


class LogPage(Shown):
    task_id: str
    lines: list[LogLine]
    next_after: int
    next_offset: int
    more: bool


class FollowLog(Given):
    after: Line = 0


class FollowEvents(Given):
    after: Annotated[str, Field(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$")] | None = Field(
        default=None, description="The id of the last event that is known; Last-Event-ID counts first"
    )


class Problem(Shown):
    """RFC 9457, with the error's `code`, which never changes, and the values in its message."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    details: dict[str, Any]


def in_ms(time: datetime | None) -> int | None:
    if time is None:
        return None
    from datetime import UTC

    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
