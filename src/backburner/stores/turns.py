"""All that a host's one writer has to write, in one transaction. Functions over a Transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..errors import BackburnerError
from ..lifecycle import Signal, State, next_state
from ..limits import Limits
from ..store import Lease, Turn, Wish
from ..submission import Submission
from . import claims, tasks, working
from .transaction import Transaction

_Begun = tasks.Begun | Submission | BackburnerError


def take(
    tx: Transaction,
    reports: working.Reports,
    submissions: tasks.Submissions,
    wishes: Sequence[Wish],
    fair: bool,
    limits: Limits,
) -> Turn:
    """As `report_all`, then `submit_all`, then `claim` for each wish, in few round trips.

    A new task that finds nothing before it in its queue is written once, as leased, and not queued first;
    but where limits may hold one of them, or the queue is paused, all are claimed.
    """
    if any(wish.task_id is not None for wish in wishes):
        assert not submissions, "who is told what to take is handed nothing in"
        return _take_named(tx, reports, wishes, limits)
    locked, lengths = working.lock(tx, reports), tasks.ask_lengths(tx, submissions)
    paused = tx.ask("paused_queues") if submissions and wishes else None
    waiting = tasks.count_waiting(lengths)
    # Where owners take turns, what ends now counts as under way: else one worker would never change owners.
    lost = [] if fair else working.report_all(tx, reports, locked)
    counted = {new.queue for new, _ in submissions if limits or new.limits is not None}
    if paused is not None:
        counted |= {row["queue"] for row in paused.fetchall()}
    free = {
        wish.queue: deque(wish.workers)
        for wish in wishes
        if wish.queue in waiting.keys() - counted
        and not fair
        and not waiting[wish.queue].total()
        and f"queue:{wish.queue}" not in tx.topics
    }
    begun: dict[int, _Begun] = {}
    for at in sorted(range(len(submissions)), key=lambda at: -submissions[at][0].priority):
        new, cap = submissions[at]
        names = free.get(new.queue)
        begun[at] = one = tasks.begin(tx, new, cap, waiting[new.queue], names[0] if names else None)
        if names and isinstance(one, tasks.Begun):
            names.popleft()
    due = tx.ask("next_ready_at")
    others = {wish.queue: wish.workers for wish in wishes if wish.queue not in free}
    looked = {queue: claims.look(tx, [queue], len(workers), fair) for queue, workers in others.items()}
    leases: dict[str, list[Lease]] = {queue: [] for queue in free}
    submitted = [_kept(tx, begun[at], leases) for at in range(len(submissions))]
    next_due = due.fetchone()
    if made_ready := claims.make_ready(tx, next_due):
        next_due = tx.one("next_ready_at")
    if made_ready or counted:
        tx.flush()  # what new tasks are under
        looked = {queue: claims.look(tx, [queue], len(workers), fair) for queue, workers in others.items()}
    for queue, workers in others.items():
        leases[queue] = claims.take(tx, looked[queue], [queue], workers, fair, limits)
    if fair:
        lost = working.report_all(tx, reports, locked)
    tx.flush()
    kept = [None if isinstance(one, BackburnerError) else one for one in submitted]
    granted = [leases[wish.queue] for wish in wishes]
    return Turn(lost, kept, granted, frozenset(tx.topics), claims.in_ms(tx, next_due))


def _take_named(tx: Transaction, reports: working.Reports, wishes: Sequence[Wish], limits: Limits) -> Turn:
    """As `report_all`, then `claim_task` for each wish, in few round trips."""
    locked, due = working.lock(tx, reports), tx.ask("next_ready_at")
    looked = [tx.ask("ready_task", task_id=wish.task_id) for wish in wishes]
    lost = working.report_all(tx, reports, locked)
    if claims.make_ready(tx, due.fetchone()):
        looked = [tx.ask("ready_task", task_id=wish.task_id) for wish in wishes]
    leases = [
        claims.take_named(tx, found.fetchone(), wish.workers[0], limits)
        for wish, found in zip(wishes, looked, strict=True)
    ]
    tx.flush()
    return Turn(lost, [], leases, frozenset(tx.topics))


def _kept(tx: Transaction, begun: _Begun, leases: dict[str, list[Lease]]) -> Submission | BackburnerError:
    """What became of a submission; if it was leased right away, its lease is added to those of its queue."""
    if not isinstance(begun, tasks.Begun):
        return begun
    if begun.worker is None:
        return tasks.kept(tx, begun) or tasks.instead(tx, begun)
    state = next_state(State.QUEUED, Signal.CLAIM)
    assert state is not None, "what is queued can be claimed"
    worker, now = begun.worker, tx.now
    leased = {"state": state, "attempt": 1, "worker_id": worker, "heartbeat_at": now, "updated_at": now}
    submission = tasks.kept(tx, begun, leased)
    if submission is None:
        return tasks.instead(tx, begun)
    task_id = begun.new.task_id
    tx.later("insert_attempt", task_id=task_id, attempt=1, worker_id=worker, now=now)
    tx.record(task_id, 1, Signal.CLAIM, State.QUEUED, state, worker)
    leases[begun.new.queue].append(Lease(submission.task, worker))
    return submission
