"""Retries: the policy, its waits, and what does not count as a try."""

from __future__ import annotations

from ...lifecycle import State
from ...reports import Failed, HandedBack, Succeeded
from ...retry import Retry
from ...store import Store
from ..clock import FakeClock
from .base import CRASH, LOST, QUEUE, TWICE_MORE, WithWork, Work


class Retrying(WithWork):
    def test_a_failure_that_the_policy_names_waits_and_is_tried_again(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started(retry=TWICE_MORE)
        store.report(lease, Failed(CRASH))
        task = store.get(lease.task_id)
        assert (task.state, task.failures, task.error) == (State.QUEUED, 1, CRASH)
        assert (task.ready_at, store.ready_in_ms()) == (clock.now_ms() + 10_000, 10_000)
        assert (task.worker_id, task.started_at) == (None, None)
        assert store.claim([QUEUE], ["w1"]) == []
        assert store.make_ready() == []
        clock.advance(10)
        assert store.ready_in_ms() == 0
        assert store.make_ready() == [lease.task_id]
        assert store.make_ready() == []
        assert store.ready_in_ms() is None
        assert work.claim(lease.task_id).attempt == 2

    def test_a_claim_takes_retries_that_are_due(self, store: Store, work: Work, clock: FakeClock) -> None:
        lease = work.started(retry=TWICE_MORE)
        store.report(lease, Failed(CRASH))
        assert store.claim_task(lease.task_id, "w1") is None
        clock.advance(10)
        (again,) = store.claim([QUEUE], ["w1"])
        assert (again.task_id, again.attempt) == (lease.task_id, 2)

    def test_the_wait_doubles_and_the_last_failure_is_final(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued(retry=TWICE_MORE)
        waits = []
        for _ in range(2):
            store.report(work.start(work.claim(task_id)), Failed(CRASH))
            waits.append(store.ready_in_ms() or 0)
            clock.advance(waits[-1] / 1000)
        store.report(work.start(work.claim(task_id)), Failed(CRASH))
        assert waits == [10_000, 20_000]
        assert work.state(task_id) == State.FAILED
        assert [attempt.outcome for attempt in store.attempts(task_id)] == ["failed"] * 3
        assert work.signals(task_id).count("retry") == 2

    def test_a_failure_that_the_policy_does_not_name_is_final(self, store: Store, work: Work) -> None:
        lease = work.started(retry=Retry(max_attempts=5, on=("worker_lost", "OSError")))
        store.report(lease, Failed(CRASH))
        assert work.state(lease.task_id) == State.FAILED

    def test_a_policy_may_name_the_exception(self, store: Store, work: Work) -> None:
        lease = work.started(retry=Retry(max_attempts=2, on=("RuntimeError",)))
        store.report(lease, Failed(CRASH))
        assert work.state(lease.task_id) == State.QUEUED

    def test_a_lost_worker_is_retried_at_once_the_first_time(self, store: Store, work: Work) -> None:
        lease = work.started(retry=Retry(max_attempts=3, backoff_s=10))
        store.report(lease, Failed(LOST))
        assert store.get(lease.task_id).ready_at is None
        store.report(work.start(work.claim(lease.task_id)), Failed(LOST))
        assert store.get(lease.task_id).ready_at is not None

    def test_a_task_that_is_handed_back_is_ready_at_once_and_has_used_no_try(
        self, store: Store, work: Work
    ) -> None:
        task_id = work.queued(retry=Retry(max_attempts=1, on=("*",)))
        for attempt in (1, 2, 3):
            lease = work.claim(task_id)
            assert lease.attempt == attempt
            store.report(work.start(lease), HandedBack("leaving"))
            task = store.get(task_id)
            assert (task.state, task.failures, task.error, task.ready_at) == (State.QUEUED, 0, None, None)
        store.report(work.start(work.claim(task_id)), Succeeded("1"))
        assert work.state(task_id) == State.SUCCEEDED

    def test_a_waiting_retry_keeps_its_place_by_age(self, store: Store, work: Work, clock: FakeClock) -> None:
        lease = work.started(retry=TWICE_MORE)
        younger = work.queued()
        store.report(lease, Failed(CRASH))
        clock.advance(10)
        assert [found.task_id for found in store.claim([QUEUE], ["a", "b"])] == [lease.task_id, younger]
