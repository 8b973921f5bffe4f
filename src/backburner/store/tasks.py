"""Tasks: submission, lookup, lists, and the changes that callers make."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol

from ..core.lifecycle import TERMINAL, Signal, State, next_state
from ..core.task import (
    Attempt,
    Event,
    InputRequest,
    NewTask,
    Submission,
    Task,
    TaskError,
    TaskHead,
    as_submitted,
    first_task_id,
    ids_that_begin,
    time_of_id,
)
from ..errors import BackburnerError, IdempotencyConflict, NotAllowedNow, QueueFull, TaskNotFound
from . import limits, webhooks
from .sql import rows
from .sql.transaction import Result, Row, SqlBase, Transaction, read, read_snapshot, write

#: The advised wait for a full queue.
FULL_QUEUE_WAIT_S = 5
#: The largest difference of two hosts' clocks at which a list by time is complete.
_CLOCK_SKEW_MS = 60_000
#: The largest difference of a submitter's clock at which its timestamp is used.
_SUBMIT_SKEW_MS = 1_000
_ANY_SEQ = 2**62


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A filter for tasks, newest first. `before_seq` is the end of the previous page.

    With `after_seq` (0 for the first page) the oldest come first. `id_beginning` is a prefix of an id. `text`
    is searched in the tool name, tags, external id and error, ignoring case.
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
class Runtime:
    """The duration of one success, with the author's estimate. `inputs_hash` is not compared."""

    inputs_bytes: int
    seconds: float
    hint_s: float | None
    inputs_hash: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Numbers of queued and leased tasks in a queue."""

    queue: str
    queued: int
    leased: int


class TaskStore(Protocol):
    """With an `owner`, a method raises TaskNotFound for tasks of other owners."""

    def submit(self, new: NewTask, *, queue_cap: int | None = None) -> Submission:
        """Insert a task. The same idempotency key and inputs return the first task, with `created=False`.

        Raises IdempotencyConflict, and QueueFull when `queue_cap` tasks wait already.
        """
        ...

    def get(self, task_id: str, owner: str | None = None) -> Task:
        """Raises TaskNotFound."""
        ...

    def head(self, task_id: str, owner: str | None = None) -> TaskHead:
        """Return the cheap part of a task. Raises TaskNotFound."""
        ...

    def heads(self, task_ids: Collection[str]) -> dict[str, TaskHead]:
        """Return the heads of the tasks that exist, by id."""
        ...

    def find(self, external_id: str, owner: str) -> Task | None: ...

    def ids(self, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        """Return the first task ids with this prefix, sorted."""
        ...

    def page(self, query: TaskQuery) -> list[Task]: ...

    def position(self, task: Task, limit: int = 500) -> int | None:
        """Return a task's place in its queue, from 1 and at most `limit`; None unless it is queued."""
        ...

    def events(self, task_id: str) -> list[Event]: ...

    def attempts(self, task_id: str) -> list[Attempt]: ...

    def input_requests(self, task_id: str) -> list[InputRequest]:
        """Return all questions of a task, answered and open, in order."""
        ...

    def runtimes(self, tool_name: str, limit: int = 100) -> list[Runtime]:
        """Return the durations of the tool's latest successes, newest first."""
        ...

    def queue_depths(self) -> list[QueueDepth]: ...

    def count_states(self, owner: str | None = None) -> dict[State, int]: ...

    def count_owners(self) -> dict[str, int]:
        """Count the tasks of each owner."""
        ...

    def cancel(self, task_id: str, owner: str | None = None, reason: str | None = None) -> Task:
        """Request a cancel. A queued task is cancelled at once; a finished one does not change."""
        ...

    def answer(self, task_id: str, answers: Mapping[str, tuple[str, Any]], owner: str | None = None) -> Task:
        """Answer open questions: key to (action, content). Ignores unknown and answered keys."""
        ...

    def tell_model(self, task_id: str, owner: str | None = None) -> bool:
        """Record that a model knows the end of a task. Return False if that was recorded before."""
        ...

    def retry(self, task_id: str, owner: str | None = None) -> Task:
        """Queue a failed, cancelled or timed-out task again. Raises NotAllowedNow."""
        ...

    def delete(self, task_id: str, owner: str | None = None) -> None:
        """Delete a finished task and all its records. Raises NotAllowedNow."""
        ...


class SqlTasks(SqlBase):
    @write
    def submit(self, tx: Transaction, new: NewTask, *, queue_cap: int | None = None) -> Submission:
        (result,) = submit_all(tx, [(new, queue_cap)])
        if isinstance(result, BackburnerError):
            raise result
        return result

    @read
    def get(self, tx: Transaction, task_id: str, owner: str | None = None) -> Task:
        return get(tx, task_id, owner)

    @read
    def head(self, tx: Transaction, task_id: str, owner: str | None = None) -> TaskHead:
        return _head(_visible(tx, "task_head", task_id, owner))

    @read
    def heads(self, tx: Transaction, task_ids: Collection[str]) -> dict[str, TaskHead]:
        found = tx.all("task_heads", task_ids=json.dumps([*task_ids]))
        return {row["task_id"]: _head(row) for row in found}

    @read
    def find(self, tx: Transaction, external_id: str, owner: str) -> Task | None:
        row = tx.one("find_external", external_id=external_id, owner=owner)
        return None if row is None else rows.task(row)

    @read
    def ids(self, tx: Transaction, beginning: str, owner: str | None = None, limit: int = 10) -> list[str]:
        first, last = ids_that_begin(beginning)
        found = tx.all("ids_between", first=first, last=last, owner=owner, limit=limit)
        return [row["task_id"] for row in found]

    @read_snapshot
    def page(self, tx: Transaction, query: TaskQuery) -> list[Task]:
        return _page(tx, query)

    @read
    def position(self, tx: Transaction, task: Task, limit: int = 500) -> int | None:
        return _position(tx, task, limit)

    @read
    def events(self, tx: Transaction, task_id: str) -> list[Event]:
        return [rows.event(row) for row in tx.all("events", task_id=task_id)]

    @read
    def attempts(self, tx: Transaction, task_id: str) -> list[Attempt]:
        return [rows.attempt(row) for row in tx.all("attempts", task_id=task_id)]

    @read
    def input_requests(self, tx: Transaction, task_id: str) -> list[InputRequest]:
        return [rows.input_request(row) for row in tx.all("input_requests", task_id=task_id)]

    @read
    def runtimes(self, tx: Transaction, tool_name: str, limit: int = 100) -> list[Runtime]:
        return [rows.record(Runtime, row) for row in tx.all("runtimes", tool_name=tool_name, limit=limit)]

    @read_snapshot
    def queue_depths(self, tx: Transaction) -> list[QueueDepth]:
        leased = {row["queue"]: row["leased"] for row in tx.all("leased_by_queue")}
        queued = {row["queue"]: int(row["queued"]) for row in tx.all("queue_depths")}
        names = sorted({*leased, *queued})
        return [QueueDepth(name, queued.get(name, 0), leased.get(name, 0)) for name in names]

    @read
    def count_states(self, tx: Transaction, owner: str | None = None) -> dict[State, int]:
        found = tx.all("count_states") if owner is None else tx.all("count_states_of_owner", owner=owner)
        return {State(row["state"]): row["tasks"] for row in found}

    @read
    def count_owners(self, tx: Transaction) -> dict[str, int]:
        return {row["owner"]: row["tasks"] for row in tx.all("count_owners")}

    @write
    def cancel(
        self, tx: Transaction, task_id: str, owner: str | None = None, reason: str | None = None
    ) -> Task:
        row = _visible(tx, "lock_task", task_id, owner)
        before = State(row["state"])
        after = next_state(before, Signal.CANCEL)
        if after is not None:
            tx.run("request_cancel", task_id=task_id, state=after, now=tx.now, reason=reason)
            if after is State.CANCELLED:
                error = rows.cancel_error(reason, TaskError("cancelled", "Cancelled before it started."))
                webhooks.enqueue(tx, row, task_id, after, error)
                tx.run(
                    "finish_task",
                    task_id=task_id,
                    state=after,
                    now=tx.now,
                    failures=row["failures"],
                    started_at=None,
                    result_json=None,
                    error_json=rows.error_json(error),
                    metrics_json=None,
                )
                limits.release_next(tx, row)
            detail = {"reason": reason} if reason else {}
            tx.record(task_id, row["attempt"], Signal.CANCEL, before, after, row["worker_id"], **detail)
            tx.topics.add(f"steer:{task_id}")
        return get(tx, task_id)

    @write
    def answer(
        self,
        tx: Transaction,
        task_id: str,
        answers: Mapping[str, tuple[str, Any]],
        owner: str | None = None,
    ) -> Task:
        row = _visible(tx, "lock_task", task_id, owner)
        before = State(row["state"])
        after = next_state(before, Signal.ANSWER)
        if after is None:
            return get(tx, task_id)
        accepted = []
        for key, (action, content) in answers.items():
            content_json = None if content is None else rows.encode(content)
            question = {"task_id": task_id, "key": key, "attempt": row["attempt"]}
            if tx.one(
                "answer_input_request", **question, now=tx.now, action=action, content_json=content_json
            ):
                accepted.append(key)
        if accepted:
            tx.topics.update((f"task:{task_id}", f"steer:{task_id}"))
            unanswered = tx.one("open_questions", task_id=task_id, attempt=row["attempt"])
            if unanswered is not None and unanswered["open"] == 0:
                worker = row["worker_id"]
                tx.run("move_task", task_id=task_id, state=after, now=tx.now, worker_id=worker)
                tx.record(task_id, row["attempt"], Signal.ANSWER, before, after, worker, keys=accepted)
        return get(tx, task_id)

    @write
    def tell_model(self, tx: Transaction, task_id: str, owner: str | None = None) -> bool:
        row = _visible(tx, "lock_task", task_id, owner)
        if tx.one("model_notice", task_id=task_id, attempt=row["attempt"]) is not None:
            return False
        tx.note(task_id, "told_model")
        return True

    @write
    def retry(self, tx: Transaction, task_id: str, owner: str | None = None) -> Task:
        row = _visible(tx, "lock_task", task_id, owner)
        before = State(row["state"])
        after = next_state(before, Signal.RETRY)
        if after is None or before not in TERMINAL:
            raise NotAllowedNow(task_id=task_id, state=before, signal="be retried")
        tx.run(
            "requeue_task",
            task_id=task_id,
            state=after,
            now=tx.now,
            ready_at=None,
            failures=0,
            error_json=None,
            ran=True,
        )
        tx.record(task_id, row["attempt"], Signal.RETRY, before, after, None, by="caller")
        tx.topics.add(f"queue:{row['queue']}")
        return get(tx, task_id)

    @write
    def delete(self, tx: Transaction, task_id: str, owner: str | None = None) -> None:
        row = _visible(tx, "lock_task", task_id, owner)
        if State(row["state"]) not in TERMINAL:
            raise NotAllowedNow(task_id=task_id, state=row["state"], signal="be deleted; cancel it first")
        delete_task(tx, {**rows.by_name(row), "task_id": task_id})
        tx.topics.add(f"task:{task_id}")


# -- submission ----------------------------------------------------------------------------------

Submissions = Sequence[tuple[NewTask, int | None]]


def submit_all(tx: Transaction, submissions: Submissions) -> list[Submission | BackburnerError]:
    """Insert tasks, each with the cap of its queue. A refused one has its error in its place."""
    waiting = count_waiting(send_lengths(tx, submissions))
    inserts = [send_insert(tx, new, cap, waiting[new.queue]) for new, cap in submissions]
    return [
        (finish_insert(tx, one) or existing(tx, one.new)) if isinstance(one, Insert) else one
        for one in inserts
    ]


def send_lengths(tx: Transaction, submissions: Submissions) -> dict[str, Result]:
    """Start to count the queued tasks in the queues of new tasks."""
    return {queue: tx.send("queue_length", queue=queue) for queue in {new.queue for new, _ in submissions}}


def count_waiting(lengths: Mapping[str, Result]) -> dict[str, Counter[int]]:
    """Return the numbers of queued tasks by queue and priority."""
    return {
        queue: Counter({row["priority"]: int(row["queued"]) for row in result.fetchall()})
        for queue, result in lengths.items()
    }


@dataclass(frozen=True, slots=True)
class Insert:
    """A started insert of a task, queued behind `ahead` others or leased to `worker`."""

    new: NewTask
    result: Result
    ahead: int
    worker: str | None


def send_insert(
    tx: Transaction, new: NewTask, cap: int | None, waiting: Counter[int], worker: str | None = None
) -> Insert | Submission | BackburnerError:
    """Start to insert a task, and count it in `waiting`. Return the result at once if it is a known task."""
    if abs(tx.now - new.submitted_at) > _SUBMIT_SKEW_MS:  # another clock would change its time to live
        new = type(new)(**{**rows.values_of(new), "submitted_at": tx.now})
    if new.idempotency_key is not None or new.external_id is not None:
        same = _same_submission(tx, new)
        if same is not None:
            return same
    if cap is not None and (length := waiting.total()) >= cap:
        full = QueueFull(queue=new.queue, length=length, retry_after_s=FULL_QUEUE_WAIT_S)
        return _same_submission(tx, new) or full
    ahead = sum(queued for priority, queued in waiting.items() if priority >= new.priority)
    if worker is None:
        waiting[new.priority] += 1
    return Insert(new, tx.send("insert_task", **rows.new_task(new, tx.now, worker)), ahead, worker)


def finish_insert(
    tx: Transaction, insert: Insert, leased: Mapping[str, Any] = MappingProxyType({})
) -> Submission | None:
    """Complete an insert; None if there is an `existing` task. `leased` has the fields of a lease."""
    new, inserted = insert.new, insert.result.fetchone()
    if inserted is None:
        return None
    seq = inserted["seq"]
    tx.many("insert_tag", [{"owner": new.owner, "tag": tag, "seq": seq} for tag in new.tags])
    tx.record(new.task_id, 0, "submit", None, State.QUEUED, None)
    limits.insert(tx, new, seq)
    if insert.worker is None:
        tx.topics.add(f"queue:{new.queue}")
        if new.handed_to:
            job = {"task_id": new.task_id, "engine": new.handed_to, "queue": new.queue}
            tx.defer("insert_external_job", **job, now=tx.now)
    return Submission(as_submitted(new, seq, leased), created=True, position=insert.ahead + 1)


def existing(tx: Transaction, new: NewTask) -> Submission | IdempotencyConflict:
    """Return the task of the same key, which another process or an earlier try just inserted."""
    return _same_submission(tx, new) or IdempotencyConflict(key=new.task_id, task_id=new.task_id)


def _same_submission(tx: Transaction, new: NewTask) -> Submission | IdempotencyConflict | None:
    """Return the task with the same key or id, if there is one."""
    same = tx.one(
        "same_submission",
        task_id=new.task_id,
        owner=new.owner,
        tool_name=new.tool_name,
        idempotency_key=new.idempotency_key,
        external_id=new.external_id,
    )
    if same is None:
        return None
    if same["inputs_hash"] != new.inputs_hash:
        key = new.idempotency_key or new.external_id or new.task_id
        return IdempotencyConflict(key=key, task_id=same["task_id"])
    task = get(tx, same["task_id"])
    return Submission(task, created=task.task_id == new.task_id, position=_position(tx, task))


# -- reads ---------------------------------------------------------------------------------------


def get(tx: Transaction, task_id: str, owner: str | None = None) -> Task:
    return rows.task(_visible(tx, "get_task", task_id, owner))


def _visible(tx: Transaction, statement: str, task_id: str, owner: str | None) -> Row:
    """Return the row of a task that `owner` may see. Raises TaskNotFound."""
    row = tx.one(statement, task_id=task_id)
    if row is None or (owner is not None and row["owner"] != owner):
        raise TaskNotFound(task_id=task_id)
    return row


def _head(row: Row) -> TaskHead:
    return rows.record(TaskHead, row, state=State(row["state"]))


def _position(tx: Transaction, task: Task, limit: int = 500) -> int | None:
    if task.state is not State.QUEUED or task.waits_for is not None:
        return None
    row = tx.one("position", queue=task.queue, priority=task.priority, seq=task.seq, limit=limit)
    return int(row["position"]) if row else None


def _page(tx: Transaction, query: TaskQuery) -> list[Task]:
    """Return a page of tasks. Each state and tag is a scan of an index; the scans are merged."""
    first_id, last_id = ids_that_begin(query.id_beginning or "tsk_")
    since = [] if query.submitted_after is None else [query.submitted_after]
    since += [time_of_id(first_id)] if query.id_beginning else []
    from_seq = 0
    if since:
        first = tx.one("first_since", task_id=first_task_id(max(since) - _CLOCK_SKEW_MS))
        if first is None:
            return []
        from_seq = first["seq"]
    filters = {
        "owner": query.owner,
        "from_seq": from_seq,
        "before_seq": _before_seq(tx, query, last_id),
        "after_seq": query.after_seq,
        "submitted_after": query.submitted_after if query.submitted_after is not None else -1,
        "tool_name": query.tool_name,
        "parent_id": query.parent_id,
        "submitted_before": query.submitted_before if query.submitted_before is not None else _ANY_SEQ,
        "first_id": first_id,
        "last_id": last_id,
        "queue": query.queue,
        "text": _pattern(query.text) if query.text else None,
        "limit": query.limit,
    }
    scans = [tx.all(statement, **choice, **filters) for statement, choice in _scans(query)]
    page: list[Row] = []
    for row in heapq.merge(*scans, key=lambda row: row["seq"], reverse=query.after_seq is None):
        if not page or page[-1]["seq"] != row["seq"]:  # a task with two of the tags is in two scans
            page.append(row)
    return [rows.task(row) for row in islice(page, query.limit)]


def _before_seq(tx: Transaction, query: TaskQuery, last_id: str) -> int:
    """Return where the scans begin. Ids sort by age, so newer tasks than the query's need no scan."""
    until = [] if query.submitted_before is None else [query.submitted_before]
    until += [time_of_id(last_id)] if query.id_beginning else []
    before_seq = _ANY_SEQ if query.before_seq is None else query.before_seq
    if until and (later := tx.one("first_since", task_id=first_task_id(min(until) + _CLOCK_SKEW_MS))):
        return min(before_seq, int(later["seq"]))
    return before_seq


def _pattern(text: str) -> str:
    """Return a LIKE pattern for the text anywhere."""
    plain = "".join(f"!{char}" if char in "!%_" else char for char in text)
    return f"%{plain}%"


def _scans(query: TaskQuery) -> list[tuple[str, dict[str, Any]]]:
    states: list[State | None] = [*sorted(query.states)] or [None]
    if query.after_seq is not None:
        tags = query.tags_any or (None,)
        return [("list_oldest", {"tag": tag, "state": state}) for tag in tags for state in states]
    if query.parent_id is not None:
        return [("list_parent", {"state": state}) for state in states]
    if query.tags_any:
        statement = "list_tag" if query.owner is None else "list_owner_tag"
        return [(statement, {"tag": tag, "state": state}) for tag in query.tags_any for state in states]
    return [(_scan_by_state(query, state), {"state": state}) for state in states]


def _scan_by_state(query: TaskQuery, state: State | None) -> str:
    if state is not None:
        return "list_owner_finished" if query.owner is not None and state in TERMINAL else "list_state"
    if query.owner is None:
        return "list_all"
    return "list_owner" if query.tool_name is None else "list_owner_tool"


# -- deletion ------------------------------------------------------------------------------------


def delete_outputs(tx: Transaction, task_id: str) -> None:
    for what in ("logs", "log_chunks", "artifacts", "checkpoint", "input_requests"):
        tx.run(f"delete_{what}", task_id=task_id)


def delete_task(tx: Transaction, row: Row) -> None:
    """Delete a task; `row` has its `task_id`, `seq` and `webhooks_json`."""
    task_id, seq = row["task_id"], row["seq"]
    delete_outputs(tx, task_id)
    if row["webhooks_json"] is not None:
        tx.run("delete_deliveries", task_id=task_id)
    tx.run("delete_attempts", task_id=task_id)
    tx.run("delete_events", task_id=task_id)
    tx.run("delete_tags", seq=seq)
    tx.run("delete_limits", seq=seq)
    tx.run("delete_task", task_id=task_id)
