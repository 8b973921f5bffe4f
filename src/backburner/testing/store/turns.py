"""Turns: all that a supervisor has to write, in one commit."""

from __future__ import annotations

from ...lifecycle import State
from ...reports import Change, Failed, Started, Succeeded
from ...retry import Retry
from ...store import Lease, Store, Wish
from ...watch import ANYTHING
from ..clock import FakeClock
from .base import CRASH, QUEUE, WithWork, Work, new_task


class Turns(WithWork):
    def test_a_turn_ends_submits_and_leases(self, store: Store, work: Work, clock: FakeClock) -> None:
        lease = work.claimed()
        new = new_task(clock, {"a": 1})
        turn = store.take_turn(
            [(lease, [Started(pid=7), Succeeded("1")])], [(new, None)], [Wish(QUEUE, ["w1", "w2"])]
        )
        assert work.state(lease.task_id) is State.SUCCEEDED
        ((submission,), ((taken,),)) = turn.submitted, turn.leases
        assert submission is not None
        assert (submission.created, submission.position) == (True, 1)
        assert submission.task.task_id == new.task_id
        assert (taken.task_id, taken.worker_id, taken.attempt) == (new.task_id, "w1", 1)
        assert taken.task == store.get(new.task_id)
        assert work.signals(new.task_id) == ["submit", "claim"]
        assert turn.lost == []

    def test_an_empty_turn_changes_nothing(self, store: Store, work: Work) -> None:
        task_id = work.queued()
        before = work.everything(task_id)
        turn = store.take_turn()
        assert (turn.lost, turn.submitted, turn.leases) == ([], [], [])
        assert work.everything(task_id) == before

    def test_tasks_that_wait_already_come_before_one_that_is_new(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        waits = work.queued()
        urgent = new_task(clock, priority=5)
        new = new_task(clock)
        turn = store.take_turn((), [(new, None), (urgent, None)], [Wish(QUEUE, ["w1", "w2"])])
        assert [lease.task_id for lease in turn.leases[0]] == [urgent.task_id, waits]

    def test_what_is_refused_does_not_hinder_the_rest(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        first = new_task(clock, {"a": 1}, idempotency_key="k")
        again = new_task(clock, {"a": 1}, idempotency_key="k")
        conflict = new_task(clock, {"a": 2}, idempotency_key="k")
        too_many = new_task(clock)
        stale = work.claimed()
        store.report(stale, Started(pid=7), Succeeded("1"))
        turn = store.take_turn(
            [(stale, [Succeeded("2")])],
            [(first, None), (again, None), (conflict, None), (too_many, 1)],
        )
        became = [one and (one.task.task_id, one.created) for one in turn.submitted]
        assert became == [(first.task_id, True), (first.task_id, False), None, None]
        assert turn.lost == [stale]
        assert store.get(stale.task_id).result == 1
        assert store.count_states() == {State.QUEUED: 1, State.SUCCEEDED: 1}

    def test_a_task_that_a_report_queues_again_can_be_leased_in_the_same_turn(
        self, store: Store, work: Work
    ) -> None:
        lease = work.claimed(retry=Retry(max_attempts=2, backoff_s=0, on=("*",)))
        turn = store.take_turn([(lease, [Started(pid=7), Failed(CRASH)])], (), [Wish(QUEUE, ["w2"])])
        ((again,),) = turn.leases
        assert (again.task_id, again.attempt) == (lease.task_id, 2)

    def test_shares_take_turns_also_at_one_worker_that_ends_a_task_and_wants_the_next(
        self, store: Store, work: Work
    ) -> None:
        first, second = work.queued(share="ann"), work.queued(share="ann")
        other = work.queued(share="bob")
        order: list[str] = []
        reports: list[tuple[Lease, list[Change]]] = []
        for _ in range(3):
            turn = store.take_turn(reports, (), [Wish(QUEUE, ["w1"])], fair=True)
            ((lease,),) = turn.leases
            order.append(lease.task_id)
            reports = [(lease, [Started(pid=7), Succeeded("1")])]
        assert order == [first, other, second]

    def test_a_turn_says_when_a_task_becomes_ready_by_itself(self, store: Store, work: Work) -> None:
        lease = work.claimed(retry=Retry(max_attempts=2, backoff_s=3, on=("*",)))
        turn = store.take_turn([(lease, [Started(pid=7), Failed(CRASH)])], (), [Wish(QUEUE, ["w2"])])
        assert turn.leases == [[]]
        assert turn.ready_in_ms is not None
        assert 0 < turn.ready_in_ms <= 3000

    def test_a_task_that_is_named_is_leased_in_the_turn_that_ends_another(
        self, store: Store, work: Work
    ) -> None:
        lease = work.started()
        work.queued(priority=5)
        wanted = work.queued()
        ended = (lease, [Succeeded("1")])
        turn = store.take_turn([ended], (), [Wish(QUEUE, ["w1"], wanted), Wish(QUEUE, ["w2"], "tsk_nobody")])
        assert [[each.task_id for each in leases] for leases in turn.leases] == [[wanted], []]
        assert work.state(lease.task_id) is State.SUCCEEDED
        again = store.take_turn((), (), [Wish(QUEUE, ["w3"], wanted)])
        assert again.leases == [[]], "another has it"

    def test_others_hear_of_a_turn_and_who_took_it_is_told(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        own, other = store.watch(), store.watch()
        try:
            lease = work.claimed()
            for watch in (own, other):
                watch.wait(20)
            new = new_task(clock)
            turn = store.take_turn([(lease, [Started(pid=7), Succeeded("1")])], [(new, None)], watch=own)
            heard: set[str] = set()
            while not {f"task:{lease.task_id}", ANYTHING} & heard:
                heard |= other.wait(20)
            assert {f"task:{lease.task_id}", f"queue:{QUEUE}"} <= set(turn.topics)
            work.queued(queue="other")
            while not {"queue:other", ANYTHING} & heard:
                heard |= own.wait(20)
        finally:
            own.close()
            other.close()
