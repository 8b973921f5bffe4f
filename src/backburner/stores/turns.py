"""All that a host's one writer has to write, in one transaction. Functions over a Transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..errors import BackburnerError
from ..lifecycle import Signal, State, next_state
from ..limits import Limits
from ..store import Lease, Turn, Wish
from ..submission import Submission
from . import tasks, working
from .transaction import Answer, Transaction

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
    but where limits may hold one of them, all are claimed.
    """
    locked, lengths = working.lock(tx, reports), tasks.ask_lengths(tx, submissions)
    named = _ask_for_named(tx, wishes)
    waiting = tasks.count_waiting(lengths)
    # Where owners take turns, what ends now counts as under way: else one worker would never change owners.
    lost = [] if fair else working.report_all(tx, reports, locked)
    counted = {new.queue for new, _ in submissions if limits or new.limits is not None}
    free = {
        wish.queue: deque(wish.workers)
        for at, wish in enumerate(wishes)
        if at not in named
        and wish.queue in waiting.keys() - counted
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
    others = {
        wish.queue: wish.workers
        for at, wish in enumerate(wishes)
        if wish.queue not in free and at not in named
    }
    looked = {queue: working.look(tx, [queue], len(workers), fair) for queue, workers in others.items()}
    leases: dict[str, list[Lease]] = {queue: [] for queue in free}
    submitted = [_kept(tx, begun[at], leases) for at in range(len(submissions))]
    next_due = due.fetchone()
    if made_ready := working.make_ready(tx, next_due):
        next_due = tx.one("next_ready_at")
    if made_ready or counted:
        tx.flush()  # what new tasks are under
        looked = {queue: working.look(tx, [queue], len(workers), fair) for queue, workers in others.items()}
        named = _ask_for_named(tx, wishes)
    for queue, workers in others.items():
        leases[queue] = working.take(tx, looked[queue], [queue], workers, fair, limits)
    given = {
        at: working.take_named(tx, asked.fetchone(), wishes[at].workers[0], limits)
        for at, asked in named.items()
    }
    if fair:
        lost = working.report_all(tx, reports, locked)
    tx.flush()
    kept = [None if isinstance(one, BackburnerError) else one for one in submitted]
    granted = [given[at] if at in given else leases[wish.queue] for at, wish in enumerate(wishes)]
    return Turn(lost, kept, granted, frozenset(tx.topics), working.in_ms(tx, next_due))


def _ask_for_named(tx: Transaction, wishes: Sequence[Wish]) -> dict[int, Answer]:
    """Begin to look for the tasks that wishes name, by the place of the wish."""
    return {
        at: tx.ask("ready_task", task_id=wish.task_id)
        for at, wish in enumerate(wishes)
        if wish.task_id is not None
    }


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
