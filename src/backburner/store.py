"""The Store protocol: the one source of truth, in about two dozen verbs, and what they take and give.

Every verb is atomic: it happens whole or not at all, also when the process is killed in the
middle of it. When a verb that writes returns, what it wrote is on disk, unless its docstring
says otherwise. Every verb may raise StoreError.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .client_time_outs import KeepsTimeOuts
from .endings import EndingStore
from .hand_out import HandOutStore
from .housekeeping import KeepsHouse
from .lifecycle import State
from .limits import NO_LIMITS, Limits
from .looking import LookingStore
from .open_call import CallStore
from .reports import Change
from .submission import Submission
from .task import (
    Artifact,
    Attempt,
    Event,
    InputRequest,
    LogLine,
    NewTask,
    Task,
    TaskHead,
    Worker,
)
from .watch import Watch
from .webhooks.outbox import Outbox

# -- what verbs take and give --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks to list, newest first. Empty means any. `before_seq` is where the last page ended.

    With `after_seq` (0 for the first page) they come oldest first. `id_beginning` is part of an id, and
    `text` is in the name of the tool, a tag, the external id or the error, in small letters or capitals.
    """

    owner: str | None = None
    states: frozenset[State] = frozenset()
    tool_name: str | None = None
    tags_any: tuple[str, ...] = ()
    parent_id: str | None = None
    queue: str | None = None
    id_beginning: str = ""
    text: str = ""
    submitted_after: int | None = None
    submitted_before: int | None = None
    before_seq: int | None = None
    after_seq: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's exclusive hold on one attempt: what it needs to run it.

    The attempt number is the fence: a write that names another than the current one is refused.
    """

    task: Task
    worker_id: str
    checkpoint: Any = None
    last_log_seq: int = 0

    @property
    def task_id(self) -> str:
        return self.task.task_id

    @property
    def attempt(self) -> int:
        return self.task.attempt


@dataclass(frozen=True, slots=True)
class Wish:
    """Workers of one queue that want a task each; or one that wants the task that is named.

    Of the wishes of a turn all name their task or none does, and where they do nothing is submitted.
    """

    queue: str
    workers: Sequence[str]
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of a supervisor's turn.

    Reports that were `lost`, since another has the attempt; what each submission became, None for one that
    was refused; the leases for each wish. A queue may have more where `topics` names it, and some task
    becomes ready by itself in `ready_in_ms`.
    """

    lost: Sequence[Lease]
    submitted: Sequence[Submission | None]
    leases: Sequence[Sequence[Lease]]
    topics: Collection[str] = ()
    ready_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What a lease's holder must know: does it still hold, and does somebody want the task stopped."""

    held: bool
    state: State


@dataclass(frozen=True, slots=True)
class Runtime:
    """How long one success took, and what its author had expected."""

    inputs_bytes: int
    seconds: float
    hint_s: float | None


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How busy a queue is."""

    queue: str
    queued: int
    leased: int


@dataclass(frozen=True, slots=True)
class StoreSize:
    """What a store takes on its disk.

    `log_bytes` is the part of it that is a write-ahead log, and `free_bytes` what deleted tasks left
    and no other has taken yet. That can be given back if `gives_back`, else only by `compact`.
    """

    bytes: int
    log_bytes: int = 0
    free_bytes: int = 0
    gives_back: bool = True


# -- the verbs -------------------------------------------------------------------------------------


class Store(KeepsHouse, CallStore, HandOutStore, LookingStore, Outbox, KeepsTimeOuts, EndingStore, Protocol):
    """Where tasks live, for one host or `shared` by several. Safe to use from many threads and processes."""

    url: str
    shared: bool

    def now_ms(self) -> int:
        """The time by which the store stamps what it keeps; the same for all who use it."""
        ...

    # submitting and reading

    def submit(self, new: NewTask, *, queue_cap: int | None = None) -> Submission:
        """Keep a new task. The same idempotency key and inputs give the first task back, `created=False`.

        Raises IdempotencyConflict, and QueueFull when `queue_cap` tasks wait already.
        """
        ...

    def get(self, task_id: str, owner: str | None = None) -> Task:
        """One task, whole. Raises TaskNotFound, also when it is not of `owner` (None: anyone's)."""
        ...

    def head(self, task_id: str, owner: str | None = None) -> TaskHead:
        """As `get`, for those who need no more: it costs next to nothing, however large the task is."""
        ...

    def heads(self, task_ids: Collection[str]) -> dict[str, TaskHead]:
        """The heads of those of the tasks that are there, by their ids: one read, however many they are."""
        ...

    def find(self, external_id: str, owner: str) -> Task | None:
        """The owner's task with this external id, if there is one."""
        ...

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        """The first task ids that begin so, in their order; `beginning` is part of an id."""
        ...

    def page(self, query: TaskQuery) -> list[Task]:
        """One page of tasks, newest first."""
        ...

    def position(self, task: Task, limit: int = 500) -> int | None:
        """The place of a queued task in its queue, 1 is next; at most `limit`. None when it is not queued."""
        ...

    def logs(self, task_id: str, after: int = 0, limit: int = 200) -> list[LogLine]: ...

    def last_log_seq(self, task_id: str) -> int:
        """The number of the last line of a task's log so far; 0 where there is none."""
        ...

    def events(self, task_id: str) -> list[Event]: ...

    def attempts(self, task_id: str) -> list[Attempt]: ...

    def artifacts(self, task_id: str) -> list[Artifact]: ...

    def artifact(self, artifact_id: str) -> Artifact:
        """Raises ArtifactNotFound."""
        ...

    def input_requests(self, task_id: str) -> list[InputRequest]:
        """All questions of a task, answered and open, in the order asked."""
        ...

    def runtimes(self, tool_name: str, limit: int = 100) -> list[Runtime]:
        """How long the tool's latest successes took, newest first."""
        ...

    def queue_depths(self) -> list[QueueDepth]: ...

    def count_states(self, owner: str | None = None) -> dict[State, int]: ...

    def count_owners(self) -> dict[str, int]:
        """How many tasks each owner has."""
        ...

    # steering a task

    def cancel(self, task_id: str, owner: str | None = None, reason: str | None = None) -> Task:
        """Ask for a task to be stopped. A queued one is cancelled at once; a finished one stays as it is."""
        ...

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]], owner: str | None = None) -> Task:
        """Answer open questions: key to (action, content). Unknown and answered keys are passed over."""
        ...

    def tell_model(self, task_id: str, told: bool, owner: str | None = None) -> bool:
        """Write into a task's trail that a model was told of its end, or was not after all.

        Says whether that is news: False where the same was written last, since its latest attempt began.
        """
        ...

    def retry(self, task_id: str, owner: str | None = None) -> Task:
        """Queue a failed, cancelled or timed-out task once more. Raises NotAllowedNow otherwise."""
        ...

    def delete(self, task_id: str, owner: str | None = None) -> None:
        """Forget a finished task and everything about it. Raises NotAllowedNow while it is not finished."""
        ...

    # working on tasks

    def claim(
        self,
        queues: Sequence[str],
        workers: Sequence[str],
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
    ) -> list[Lease]:
        """Hand out the best ready tasks, one for each worker named: priority, fair share if on, FIFO.

        No task is ever handed out twice, and none that a limit lets not start: of the operator's
        `limits`, or of those that came with tasks. Such a task is held, and says why, until there is
        room. On SQLite the claim is on disk only with the next write: a power cut in between queues
        the task again (docs/decisions/0004).
        """
        ...

    def claim_task(self, task_id: str, worker: str, limits: Limits | None = NO_LIMITS) -> Lease | None:
        """Claim this one task if it is ready; None when it is not, or not any more, or a limit holds it.

        With None for `limits` it is claimed whatever its limits are.
        """
        ...

    def report(self, lease: Lease, *changes: Change) -> None:
        """Write what happened to an attempt, in order. Raises LeaseLost if it is not the current one."""
        ...

    def report_all(self, reports: Sequence[tuple[Lease, Sequence[Change]]]) -> list[Lease]:
        """Many reports in one commit. Gives back the leases that are lost; their reports changed nothing."""
        ...

    def take_turn(
        self,
        reports: Sequence[tuple[Lease, Sequence[Change]]] = (),
        submissions: Sequence[tuple[NewTask, int | None]] = (),
        wishes: Sequence[Wish] = (),
        *,
        fair: bool = False,
        limits: Limits = NO_LIMITS,
        watch: Watch | None = None,
    ) -> Turn:
        """As `report_all`, then `submit` for each with its `queue_cap`, then `claim`, all in one commit.

        For a wish that names its task, `claim_task`.
        `watch`, of the same store, need not hear of it: the turn says it.
        """
        ...

    def heartbeat(self, leases: Sequence[Lease], workers: Sequence[Worker]) -> list[LeaseView]:
        """Keep leases alive and say what each holder must know; write how its workers are."""
        ...

    def remove_workers(self, supervisor_id: str) -> None: ...

    def workers(self) -> list[Worker]: ...

    # the store itself

    def watch(self, *, steering: bool = False) -> Watch:
        """Hear what changes. With `steering` only what is for the holders of tasks, at least."""
        ...

    def secret(self) -> bytes:
        """A random key that was made with the store: it signs cursors and artifact links."""
        ...

    def spend(self, name: str, for_s: float) -> bool:
        """Use up a name that can be used once, and remember it for so long. False if it was used before."""
        ...

    def is_spent(self, name: str) -> bool:
        """Return whether a name was used up, and is remembered still."""
        ...

    def check_writable(self) -> None:
        """Write what changes nothing, so that it shows whether a write is possible; it is not synced.

        Raises StoreBusy within seconds while another process keeps the store locked.
        """
        ...

    def wait_for_writers(self, seconds: float) -> None:
        """Set how long a write waits for another process of this host before it raises StoreBusy."""
        ...

    def size(self) -> StoreSize: ...

    def give_back(self, keep_bytes: int = ...) -> int:
        """Give back to the disk a little of what deleted tasks left, so that no writer waits for long.

        Says how many bytes it were: 0 when no more than `keep_bytes` are left, which the next tasks
        may use, and where the database sees to it by itself.
        """
        ...

    def compact(self) -> None:
        """Give back all of it, by writing the store anew. All writers wait. Raises NoRoomToCompact."""
        ...

    def version(self) -> int:
        """The number of the last migration applied."""
        ...

    def close(self) -> None: ...
