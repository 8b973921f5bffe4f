"""All that a supervisor has to write, in one transaction. Functions over a Transaction."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from ..errors import BackburnerError
from ..lifecycle import Signal, State, next_state
from ..reports import Change
from ..store import Lease, Turn, Wish
from ..submission import Submission
from ..task import NewTask
from . import tasks, working
from .transaction import Transaction


def take(
    tx: Transaction,
    reports: Sequence[tuple[Lease, Sequence[Change]]],
    submissions: Sequence[tuple[NewTask, int | None]],
    wishes: Sequence[Wish],
    fair: bool,
) -> Turn:
    """Report, submit and claim; see `Store.take_turn`."""
    lost = working.report_all(tx, reports) if reports else []
    next_ready = tx.ask("next_ready_at")
    queues = {new.queue for new, _ in submissions}
    waiting = tasks.count_waiting(tx, queues)
    ready_in_ms = working.in_ms(tx, next_ready)
    if ready_in_ms == 0:  # what becomes ready now has waited longer than what is new
        working.make_ready(tx)
        waiting, ready_in_ms = tasks.count_waiting(tx, queues), working.ready_in_ms(tx)
    submitted, leases = _submit_and_claim(tx, submissions, wishes, waiting, fair)
    tx.flush()
    return Turn(lost, submitted, leases, frozenset(tx.topics), ready_in_ms)


def _submit_and_claim(
    tx: Transaction,
    submissions: Sequence[tuple[NewTask, int | None]],
    wishes: Sequence[Wish],
    waiting: dict[str, Counter[int]],
    fair: bool,
) -> tuple[list[Submission | None], list[list[Lease]]]:
    """As `submit_all`, then `claim` for each wish; `waiting` is what waits where something is submitted.

    Where nothing waits yet, a new task is written once, as leased, and not queued first.
    """
    free = {
        wish.queue: deque(wish.workers)
        for wish in wishes
        if wish.queue in waiting and not waiting[wish.queue].total() and not fair
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
        leases[wish.queue] if wish.queue in leases else working.claim(tx, [wish.queue], wish.workers, fair)
        for wish in wishes
    ]


def _kept(
    tx: Transaction, begun: tasks.Begun | Submission | BackburnerError, leases: dict[str, list[Lease]]
) -> Submission | None:
    """What became of a submission; if it was leased right away, its lease is added to those of its queue."""
    if not isinstance(begun, tasks.Begun):
        return None if isinstance(begun, BackburnerError) else begun
    submission = tasks.kept(tx, begun)
    if submission is None:
        there = tasks.instead(tx, begun)
        return None if isinstance(there, BackburnerError) else there
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
