"""Claiming: the best tasks first, each once; heartbeats and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...lifecycle import State
from ...reports import HandedBack, Succeeded
from ...store import Lease, LeaseView, Store
from ...task import Worker
from ..clock import FakeClock
from .base import QUEUE, WithWork, Work


def workers(count: int) -> list[str]:
    return [f"w{number}" for number in range(1, count + 1)]


def task_ids(leases: Sequence[Lease]) -> list[str]:
    return [lease.task_id for lease in leases]


class Claiming(WithWork):
    def test_a_claim_makes_a_lease_with_all_that_a_worker_needs(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued({"a": 1})
        clock.advance(2)
        (lease,) = store.claim([QUEUE], ["w1"])
        assert (lease.task_id, lease.attempt, lease.worker_id) == (task_id, 1, "w1")
        assert lease.task == store.get(task_id)
        assert lease.task.state is State.SCHEDULED
        assert lease.task.inputs == {"a": 1}
        assert (lease.checkpoint, lease.last_log_seq) == (None, 0)
        (attempt,) = store.attempts(task_id)
        assert (attempt.attempt, attempt.worker_id, attempt.claimed_at) == (1, "w1", clock.now_ms())
        assert attempt.outcome is None
        assert work.signals(task_id) == ["submit", "claim"]

    def test_tasks_are_handed_out_by_priority_and_then_first_come(self, store: Store, work: Work) -> None:
        low = work.queued(priority=-1)
        first, second = work.queued(), work.queued()
        urgent = work.queued(priority=10)
        assert task_ids(store.claim([QUEUE], workers(3))) == [urgent, first, second]
        assert task_ids(store.claim([QUEUE], workers(3))) == [low]
        assert store.claim([QUEUE], workers(3)) == []

    def test_each_worker_gets_one_task(self, store: Store, work: Work) -> None:
        for _ in range(3):
            work.queued()
        leases = store.claim([QUEUE], ["a", "b"])
        assert [lease.worker_id for lease in leases] == ["a", "b"]

    def test_only_the_queues_named_are_claimed_from(self, store: Store, work: Work) -> None:
        work.queued(queue="other")
        assert store.claim([QUEUE], ["w1"]) == []
        assert store.claim([], ["w1"]) == []

    def test_the_best_of_many_queues_goes_first(self, store: Store, work: Work) -> None:
        a1 = work.queued(queue="a")
        b1 = work.queued(queue="b", priority=5)
        a2 = work.queued(queue="a", priority=5)
        c1 = work.queued(queue="c")
        assert task_ids(store.claim(["a", "b", "c"], workers(3))) == [b1, a2, a1]
        assert task_ids(store.claim(["a", "b", "c"], workers(3))) == [c1]

    def test_one_task_can_be_claimed_by_its_id_once(self, store: Store, work: Work) -> None:
        work.queued()
        task_id = work.queued()
        lease = store.claim_task(task_id, "w1")
        assert lease is not None
        assert lease.task_id == task_id
        assert store.claim_task(task_id, "w2") is None
        assert store.claim_task("tsk_unknown", "w2") is None

    # -- fair share

    def test_fair_share_gives_each_owner_a_turn(self, store: Store, work: Work) -> None:
        ann = [work.queued(owner="ann", share="ann") for _ in range(4)]
        bob = [work.queued(owner="bob", share="bob") for _ in range(2)]
        assert task_ids(store.claim([QUEUE], workers(4), fair=True)) == [ann[0], bob[0], ann[1], bob[1]]

    def test_fair_share_counts_what_is_under_way(self, store: Store, work: Work) -> None:
        ann = [work.queued(share="project:a") for _ in range(4)]
        store.claim([QUEUE], workers(2), fair=True)
        bob = [work.queued(share="project:b") for _ in range(3)]
        assert task_ids(store.claim([QUEUE], workers(3), fair=True)) == [bob[0], bob[1], ann[2]]

    def test_a_share_that_has_finished_its_tasks_gets_its_turn_again(self, store: Store, work: Work) -> None:
        a = [work.queued(share="a") for _ in range(2)]
        (lease,) = store.claim([QUEUE], ["w1"], fair=True)
        work.queued(share="b")
        store.report(work.start(lease), Succeeded("1"))
        assert task_ids(store.claim([QUEUE], ["w1"], fair=True)) == [a[1]]

    def test_priority_comes_before_fairness_and_lower_ones_follow(self, store: Store, work: Work) -> None:
        low = work.queued(share="b")
        urgent = [work.queued(share="a", priority=5) for _ in range(2)]
        assert task_ids(store.claim([QUEUE], workers(3), fair=True)) == [*urgent, low]

    def test_tasks_without_a_share_are_a_share_of_their_own(self, store: Store, work: Work) -> None:
        plain = [work.queued() for _ in range(2)]
        shared = work.queued(share="a")
        assert task_ids(store.claim([QUEUE], workers(3), fair=True)) == [plain[0], shared, plain[1]]

    # -- heartbeats

    def test_a_heartbeat_keeps_a_lease_and_tells_what_its_holder_must_know(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        running, cancelled, ended = work.started(), work.started(), work.started()
        store.cancel(cancelled.task_id)
        store.report(ended, Succeeded("1"))
        clock.advance(5)
        assert store.heartbeat([running, cancelled, ended], []) == [
            LeaseView(True, State.RUNNING),
            LeaseView(True, State.CANCEL_REQUESTED),
            LeaseView(False, State.SUCCEEDED),
        ]
        assert store.get(running.task_id).heartbeat_at == clock.now_ms()
        assert store.get(ended.task_id).heartbeat_at == clock.now_ms() - 5000

    def test_a_heartbeat_of_an_earlier_attempt_holds_nothing(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        old = work.claimed()
        store.report(old, HandedBack("leaving"))
        new = work.claim(old.task_id, "w2")
        clock.advance(5)
        assert store.heartbeat([old], []) == [LeaseView(False, State.SCHEDULED)]
        assert store.get(new.task_id).heartbeat_at == clock.now_ms() - 5000

    def test_a_heartbeat_for_a_deleted_task_holds_nothing(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.report(lease, Succeeded("1"))
        store.delete(lease.task_id)
        (view,) = store.heartbeat([lease], [])
        assert not view.held

    def test_workers_are_seen_as_last_reported_until_their_supervisor_leaves(
        self, store: Store, clock: FakeClock
    ) -> None:
        def worker(name: str, supervisor: str) -> Worker:
            return Worker(name, supervisor, "host", QUEUE, "idle", clock.now_ms(), clock.now_ms(), pid=3)

        one, two = worker("w1", "s1"), worker("w2", "s2")
        store.heartbeat([], [one, two])
        clock.advance(3)
        busy = replace(one, state="busy", current_task_id="tsk_x", pid=4)
        store.heartbeat([], [busy])
        assert store.workers() == [replace(busy, last_heartbeat=clock.now_ms()), two]
        store.remove_workers("s1")
        assert store.workers() == [two]
