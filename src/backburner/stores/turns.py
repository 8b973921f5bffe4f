"""New tasks and the workers that want some, in one transaction. Functions over a Transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ..errors import BackburnerError
from ..lifecycle import Signal, State, next_state
from ..store import Lease, Submission
from ..task import NewTask
from . import tasks, working
from .transaction import Transaction

#: What became of each submission, and the leases for each wish.
_Turn = tuple[list[Submission | BackburnerError], list[list[Lease]]]


def submit_and_claim(
    tx: Transaction,
    submissions: Sequence[tuple[NewTask, int | None]],
    wishes: Sequence[tuple[str, Sequence[str]]],
    fair: bool,
) -> _Turn:
    """As `submit_all`, then `claim` for each wish: a queue, once, and the workers that want its tasks.

    Where nothing waits yet, a new task is written once, as leased, and not queued first.
    """
    waiting = tasks.count_waiting(tx, {new.queue for new, _ in submissions})
    free = {
        queue: deque(workers)
        for queue, workers in wishes
        if queue in waiting and not waiting[queue].total() and not fair
    }
    begun: dict[int, tasks.Begun | Submission | BackburnerError] = {}
    for at in sorted(range(len(submissions)), key=lambda at: -submissions[at][0].priority):
        new, cap = submissions[at]
        names = free.get(new.queue)
        begun[at] = one = tasks.begin(tx, new, cap, waiting[new.queue], names[0] if names else None)
        if names and isinstance(one, tasks.Begun):
            names.popleft()
    leases: dict[str, list[Lease]] = {queue: [] for queue in free}
    submitted = [_kept(tx, begun[at], leases) for at in range(len(submissions))]
    return submitted, [
        leases[queue] if queue in leases else working.claim(tx, [queue], workers, fair)
        for queue, workers in wishes
    ]


def _kept(
    tx: Transaction, begun: tasks.Begun | Submission | BackburnerError, leases: dict[str, list[Lease]]
) -> Submission | BackburnerError:
    """What became of a submission; if it was leased right away, its lease is added to those of its queue."""
    if not isinstance(begun, tasks.Begun):
        return begun
    submission = tasks.kept(tx, begun)
    if submission is None:
        return tasks.instead(tx, begun)
    if begun.worker is not None:
        leases[begun.new.queue].append(_leased(tx, submission, begun.worker))
    return submission


def _leased(tx: Transaction, submission: Submission, worker: str) -> Lease:
    state = next_state(State.QUEUED, Signal.CLAIM)
    assert state is not None, "what is queued can be claimed"
    task = replace(
        submission.task, state=state, attempt=1, worker_id=worker, heartbeat_at=tx.now, updated_at=tx.now
    )
    tx.later("insert_attempt", task_id=task.task_id, attempt=1, worker_id=worker, now=tx.now)
    tx.record(task.task_id, 1, Signal.CLAIM, State.QUEUED, state, worker)
    return Lease(task, worker)
