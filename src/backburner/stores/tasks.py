"""Submitting, reading and steering tasks. Functions over a Transaction."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any

from ..errors import BackburnerError, IdempotencyConflict, NotAllowedNow, QueueFull, TaskNotFound
from ..lifecycle import TERMINAL, Signal, State, next_state
from ..store import TaskQuery
from ..submission import Submission, as_submitted
from ..task import NewTask, Task, TaskError, TaskHead
from ..task_ids import first_task_id, ids_that_begin, time_of_id
from . import deliveries, limiting, rows
from .transaction import Answer, Row, Transaction

#: What a caller is told to wait when a queue is full and nothing better is known.
FULL_QUEUE_WAIT_S = 5
#: So far may the clocks of two hosts be apart before a list by time misses a task.
_CLOCKS_DIFFER_MS = 60_000
#: And so far may a caller's clock be from the store's before the store's is taken.
_CLOCKS_AGREE_MS = 1_000

# -- submitting ----------------------------------------------------------------------------------


def submit(tx: Transaction, new: NewTask, queue_cap: int | None) -> Submission:
    """Keep a new task. Raises IdempotencyConflict and QueueFull."""
    (became,) = submit_all(tx, [(new, queue_cap)])
    if isinstance(became, BackburnerError):
        raise became
    return became


Submissions = Sequence[tuple[NewTask, int | None]]


def submit_all(tx: Transaction, submissions: Submissions) -> list[Submission | BackburnerError]:
    """Keep new tasks, each with the cap of its queue. What is refused has its error in its place."""
    waiting = count_waiting(ask_lengths(tx, submissions))
    begun = [begin(tx, new, cap, waiting[new.queue]) for new, cap in submissions]
    return [(kept(tx, one) or instead(tx, one)) if isinstance(one, Begun) else one for one in begun]


def ask_lengths(tx: Transaction, submissions: Submissions) -> dict[str, Answer]:
    """Begin to count what waits in the queues of new tasks."""
    return {queue: tx.ask("queue_length", queue=queue) for queue in {new.queue for new, _ in submissions}}


def count_waiting(asked: Mapping[str, Answer]) -> dict[str, Counter[int]]:
    """How many tasks wait in each of the queues, by their priority."""
    return {
        queue: Counter({row["priority"]: int(row["queued"]) for row in answer.fetchall()})
        for queue, answer in asked.items()
    }


@dataclass(frozen=True, slots=True)
class Begun:
    """A task that is being inserted, leased for `worker` if there is one; `ahead` wait before it."""

    new: NewTask
    insert: Answer
    ahead: int
    worker: str | None


def begin(
    tx: Transaction, new: NewTask, cap: int | None, waiting: Counter[int], worker: str | None = None
) -> Begun | Submission | BackburnerError:
    """Begin to keep a task, or say what becomes of it instead. `waiting` is kept as it is then."""
    new = _by_the_clock_of(tx, new)
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
    insert = tx.ask("insert_task", **rows.new_task_parameters(new, tx.now, worker))
    return Begun(new, insert, ahead, worker)


def kept(
    tx: Transaction, begun: Begun, leased: Mapping[str, Any] = MappingProxyType({})
) -> Submission | None:
    """The task that was begun, if it could be kept; `leased` is what its lease says of it."""
    new, inserted = begun.new, begun.insert.fetchone()
    if inserted is None:
        return None
    seq = inserted["seq"]
    tx.many("insert_tag", [{"owner": new.owner, "tag": tag, "seq": seq} for tag in new.tags])
    tx.record(new.task_id, 0, "submit", None, State.QUEUED, None)
    limiting.submitted(tx, new, seq)
    if begun.worker is None:
        tx.topics.add(f"queue:{new.queue}")
        if new.handed_to:
            tx.later(
                "insert_hand_out", task_id=new.task_id, engine=new.handed_to, queue=new.queue, now=tx.now
            )
    return Submission(as_submitted(new, seq, leased), created=True, position=begun.ahead + 1)


def instead(tx: Transaction, begun: Begun) -> Submission | IdempotencyConflict:
    """What is there: another process took the key a moment ago, or this is not the caller's first try."""
    new = begun.new
    return _same_submission(tx, new) or IdempotencyConflict(key=new.task_id, task_id=new.task_id)


def _by_the_clock_of(tx: Transaction, new: NewTask) -> NewTask:
    """The task as if it had been made by the store's clock: it lives as long as it was meant to."""
    agrees = abs(tx.now - new.submitted_at) <= _CLOCKS_AGREE_MS
    return new if agrees else replace(new, submitted_at=tx.now)


def _same_submission(tx: Transaction, new: NewTask) -> Submission | IdempotencyConflict | None:
    """The task that was kept for the same key or by the same id, which is how a caller tries once more."""
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
    return Submission(task, created=task.task_id == new.task_id, position=position(tx, task, 500))


# -- reading -------------------------------------------------------------------------------------


def get(tx: Transaction, task_id: str, owner: str | None = None) -> Task:
    return rows.task(_seen(tx, "get_task", task_id, owner))


def head(tx: Transaction, task_id: str, owner: str | None = None) -> TaskHead:
    return _head(_seen(tx, "task_head", task_id, owner))


def heads(tx: Transaction, task_ids: Collection[str]) -> dict[str, TaskHead]:
    found = tx.all("task_heads", task_ids=json.dumps([*task_ids]))
    return {row["task_id"]: _head(row) for row in found}


def _head(row: Row) -> TaskHead:
    return TaskHead(row["task_id"], row["owner"], State(row["state"]), row["attempt"], row["updated_at"])


def _seen(tx: Transaction, statement: str, task_id: str, owner: str | None) -> Row:
    """The row of a task that `owner` may see. Raises TaskNotFound."""
    row = tx.one(statement, task_id=task_id)
    if row is None or (owner is not None and row["owner"] != owner):
        raise TaskNotFound(task_id=task_id)
    return row


def position(tx: Transaction, task: Task, limit: int) -> int | None:
    if task.state is not State.QUEUED or task.waits_for is not None:
        return None
    row = tx.one("position", queue=task.queue, priority=task.priority, seq=task.seq, limit=limit)
    return int(row["position"]) if row else None


def find_page(tx: Transaction, query: TaskQuery) -> list[Task]:
    """A page of tasks. Each state and tag is a walk along an index; the walks are merged."""
    first_id, last_id = ids_that_begin(query.id_beginning or "tsk_")
    from_seq = 0
    since = (
        [] if query.submitted_after is None else [first_task_id(query.submitted_after - _CLOCKS_DIFFER_MS)]
    )
    since += [first_task_id(time_of_id(first_id) - _CLOCKS_DIFFER_MS)] if query.id_beginning else []
    if since:
        first = tx.one("first_since", task_id=max(since))
        if first is None:
            return []
        from_seq = first["seq"]
    walks = [
        tx.all(
            statement,
            **choice,
            owner=query.owner,
            from_seq=from_seq,
            before_seq=_before_seq(tx, query, last_id),
            after_seq=query.after_seq,
            submitted_after=query.submitted_after if query.submitted_after is not None else -1,
            tool_name=query.tool_name,
            parent_id=query.parent_id,
            submitted_before=query.submitted_before if query.submitted_before is not None else 2**62,
            first_id=first_id,
            last_id=last_id,
            queue=query.queue,
            text=_pattern(query.text) if query.text else None,
            limit=query.limit,
        )
        for statement, choice in _walks(query)
    ]
    page: list[Row] = []
    newest_first = query.after_seq is None
    for row in heapq.merge(*walks, key=lambda row: row["seq"], reverse=newest_first):
        if not page or page[-1]["seq"] != row["seq"]:  # a task with two of the tags is in two walks
            page.append(row)
    return [rows.task(row) for row in islice(page, query.limit)]


def _before_seq(tx: Transaction, query: TaskQuery, last_id: str) -> int:
    """Where the walks begin. Ids sort by age, so what is too young for the query is not walked along."""
    until = [] if query.submitted_before is None else [query.submitted_before]
    until += [time_of_id(last_id)] if query.id_beginning else []
    before_seq = 2**62 if query.before_seq is None else query.before_seq
    if until and (later := tx.one("first_since", task_id=first_task_id(min(until) + _CLOCKS_DIFFER_MS))):
        return min(before_seq, int(later["seq"]))
    return before_seq


def _pattern(text: str) -> str:
    """For LIKE: the text as it is, anywhere."""
    plain = "".join(f"!{char}" if char in "!%_" else char for char in text)
    return f"%{plain}%"


def _walks(query: TaskQuery) -> list[tuple[str, dict[str, Any]]]:
    states: list[State | None] = [*sorted(query.states)] or [None]
    if query.after_seq is not None:
        tags = query.tags_any or (None,)
        return [("list_oldest", {"tag": tag, "state": state}) for tag in tags for state in states]
    if query.parent_id is not None:
        return [("list_parent", {"state": state}) for state in states]
    if query.tags_any:
        statement = "list_tag" if query.owner is None else "list_owner_tag"
        return [(statement, {"tag": tag, "state": state}) for tag in query.tags_any for state in states]
    return [(_walk_by_state(query, state), {"state": state}) for state in states]


def _walk_by_state(query: TaskQuery, state: State | None) -> str:
    if state is not None:
        return "list_owner_finished" if query.owner is not None and state in TERMINAL else "list_state"
    if query.owner is None:
        return "list_all"
    return "list_owner" if query.tool_name is None else "list_owner_tool"


# -- steering ------------------------------------------------------------------------------------


def cancel(tx: Transaction, task_id: str, owner: str | None, reason: str | None) -> Task:
    row = _seen(tx, "lock_task", task_id, owner)
    before = State(row["state"])
    after = next_state(before, Signal.CANCEL)
    if after is not None:
        tx.run("request_cancel", task_id=task_id, state=after, now=tx.now, reason=reason)
        if after is State.CANCELLED:
            error = rows.cancel_error(reason, TaskError("cancelled", "Cancelled before it started."))
            deliveries.tell(tx, row, task_id, after, error)
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
            limiting.has_left(tx, row)
        detail = {"reason": reason} if reason else {}
        tx.record(task_id, row["attempt"], Signal.CANCEL, before, after, row["worker_id"], **detail)
        tx.topics.add(f"steer:{task_id}")
    return get(tx, task_id)


def tell_model(tx: Transaction, task_id: str, told: bool, owner: str | None) -> bool:
    row = _seen(tx, "lock_task", task_id, owner)
    last = tx.one("last_telling", task_id=task_id, attempt=row["attempt"])
    signal = "told_model" if told else "not_told_model"
    if last is not None and last["signal"] == signal:
        return False
    tx.note(task_id, signal)
    return True


def answer(tx: Transaction, task_id: str, answers: Mapping[str, tuple[str, Any]], owner: str | None) -> Task:
    row = _seen(tx, "lock_task", task_id, owner)
    before = State(row["state"])
    after = next_state(before, Signal.ANSWER)
    if after is None:  # nobody waits for it any more
        return get(tx, task_id)
    taken = []
    for key, (action, content) in answers.items():
        content_json = None if content is None else rows.encode(content)
        touched = tx.one(
            "answer",
            task_id=task_id,
            key=key,
            attempt=row["attempt"],
            now=tx.now,
            action=action,
            content_json=content_json,
        )
        if touched:
            taken.append(key)
    if taken:
        tx.topics.update((f"task:{task_id}", f"steer:{task_id}"))
        open_questions = tx.one("open_questions", task_id=task_id, attempt=row["attempt"])
        if open_questions is not None and open_questions["open"] == 0:
            tx.run("move_task", task_id=task_id, state=after, now=tx.now, worker_id=row["worker_id"])
            tx.record(task_id, row["attempt"], Signal.ANSWER, before, after, row["worker_id"], keys=taken)
    return get(tx, task_id)


def retry(tx: Transaction, task_id: str, owner: str | None) -> Task:
    row = _seen(tx, "lock_task", task_id, owner)
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


def delete(tx: Transaction, task_id: str, owner: str | None) -> None:
    row = _seen(tx, "lock_task", task_id, owner)
    if State(row["state"]) not in TERMINAL:
        raise NotAllowedNow(task_id=task_id, state=row["state"], signal="be deleted; cancel it first")
    forget(tx, {**rows.by_name(row), "task_id": task_id})
    tx.topics.add(f"task:{task_id}")


def drop_outputs(tx: Transaction, task_id: str) -> None:
    """Drop what a task left behind, but not its record."""
    for what in ("logs", "log_chunks", "artifacts", "checkpoint", "input_requests"):
        tx.run(f"delete_{what}", task_id=task_id)


def forget(tx: Transaction, row: Row) -> None:
    """Remove every trace of a task; `row` has its `task_id`, its `seq` and its `webhooks_json`."""
    task_id, seq = row["task_id"], row["seq"]
    drop_outputs(tx, task_id)
    deliveries.forget(tx, row)
    tx.run("delete_attempts", task_id=task_id)
    tx.run("delete_events", task_id=task_id)
    tx.run("delete_tags", seq=seq)
    tx.run("delete_limits", seq=seq)
    tx.run("delete_task", task_id=task_id)
