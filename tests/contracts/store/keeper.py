"""Sweeps of the keeper: lost workers, time limits, expiry, purge, log compression."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from backburner.core.lifecycle import State
from backburner.core.reports import Change, Checkpointed, Failed, HandedBack, Logged, Started, Succeeded
from backburner.core.retry import Retry
from backburner.core.task import LogLine
from backburner.errors import TaskNotFound
from backburner.store.protocol import HeldLease, Runtime, Store
from backburner.testing import FakeClock
from tests.contracts.store.base import CRASH, QUEUE, TWICE_MORE, StoreTests, Work


class KeeperSweeps(StoreTests):
    # -- lost workers

    def test_an_attempt_without_heartbeat_is_lost_and_tried_again(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        silent, alive = work.started(worker="w1"), work.started(worker="w2")
        waiting = work.queued()
        before = store.leases()
        clock.advance(30)
        store.heartbeat([alive], [])
        assert store.lose(silent=before) == [silent.task_id]
        task = store.get(silent.task_id)
        assert (task.state, task.failures) == (State.QUEUED, 1)
        assert store.attempts(silent.task_id)[0].error == task.error
        assert task.error is not None
        assert task.error.type == "worker_lost"
        assert (work.state(alive.task_id), work.state(waiting)) == (State.RUNNING, State.QUEUED)
        assert store.lose(silent=before) == []

    def test_a_lost_attempt_without_a_further_try_has_failed(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started(retry=Retry(max_attempts=1))
        store.lose(silent=store.leases())
        task = store.get(lease.task_id)
        assert task.state is State.FAILED
        assert task.error is not None
        assert task.error.type == "worker_lost"

    def test_a_lost_attempt_that_was_being_cancelled_is_cancelled(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started()
        store.cancel(lease.task_id)
        store.lose(silent=store.leases())
        assert work.state(lease.task_id) == State.CANCELLED

    def test_the_tasks_of_a_worker_that_is_known_to_be_gone_are_lost_at_once(
        self, store: Store, work: Work
    ) -> None:
        gone, alive = work.claimed(worker="w1"), work.started(worker="w2")
        assert store.lose(workers=["w1", "unknown"]) == [gone.task_id]
        assert (work.state(gone.task_id), work.state(alive.task_id)) == (State.QUEUED, State.RUNNING)

    def test_a_lease_says_when_it_was_heard_of_and_how_long_it_may_take(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.claimed(worker="w1")
        claimed = HeldLease(lease.task_id, 1, "w1", clock.now_ms(), None)
        assert store.leases() == [claimed]
        clock.advance(5)
        store.report(lease, Started(timeout_at=clock.now_ms() + 9000))
        store.heartbeat([lease], [])
        assert store.leases() == [replace(claimed, heartbeat_at=clock.now_ms(), limit_ms=9000)]
        store.report(lease, Succeeded("1"))
        assert store.leases() == []

    # -- time limits

    def test_a_task_that_nobody_ended_in_time_times_out(self, store: Store, work: Work) -> None:
        lease, other, cancelled = work.started(), work.started(), work.started()
        store.cancel(cancelled.task_id)
        leases = {held.task_id: held for held in store.leases()}
        overdue = [leases[lease.task_id], leases[cancelled.task_id]]
        assert store.time_out(overdue) == [lease.task_id, cancelled.task_id]
        assert (work.state(lease.task_id), work.state(other.task_id)) == (State.TIMED_OUT, State.RUNNING)
        assert work.state(cancelled.task_id) == State.CANCELLED
        assert store.time_out(overdue) == []

    def test_the_time_limit_of_an_attempt_does_not_bind_the_next(self, store: Store, work: Work) -> None:
        lease = work.started()
        overdue = store.leases()
        store.lose(workers=["w1"])
        work.start(work.claim(lease.task_id))
        assert store.time_out(overdue) == []

    # -- expiry

    def test_tasks_past_their_time_to_live_expire_and_what_they_held_goes(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.asking(ttl_s=1, idempotency_key="k", external_id="e")
        artifact = work.artifact(lease)
        line = LogLine(1, 1, "stdout", "info", "x")
        store.report(lease, Logged((line,)), Checkpointed("1"), artifact, Succeeded('{"secret":1}'))
        queued, kept = work.queued(ttl_s=1), work.queued(ttl_s=1.5)
        forever = work.queued()
        assert store.expire() == []
        clock.advance(1)
        assert sorted(store.expire()) == sorted([lease.task_id, queued])
        for task_id in (lease.task_id, queued):
            task = store.get(task_id)
            assert (task.state, task.inputs, task.result) == (State.EXPIRED, None, None)
        assert store.logs(lease.task_id) == []
        assert store.artifacts(lease.task_id) == []
        assert store.input_requests(lease.task_id) == []
        assert work.signals(lease.task_id)[-1] == "expire"
        assert store.find("e", "ann") is None
        assert work.submit(idempotency_key="k").created
        assert (work.state(kept), work.state(forever)) == (State.QUEUED, State.QUEUED)
        assert store.expire() == []

    @pytest.mark.parametrize("together", [True, False])
    def test_the_time_to_live_of_a_task_that_ran_counts_from_its_end(
        self, store: Store, work: Work, clock: FakeClock, together: bool
    ) -> None:
        lease = work.claimed(ttl_s=1)
        assert store.get(lease.task_id).expires_at == clock.now_ms() + 1000
        changes: list[Change] = [Started(), Succeeded("1")]
        if not together:
            store.report(lease, changes.pop(0))
            assert store.get(lease.task_id).expires_at is None
        clock.advance(2)
        assert store.expire() == []
        store.report(lease, *changes)
        assert store.expire() == []
        assert store.get(lease.task_id).expires_at == clock.now_ms() + 1000
        clock.advance(1)
        assert store.expire() == [lease.task_id]

    def test_the_time_to_live_of_a_retry_that_waits_counts_from_the_end_of_the_last_attempt(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started(ttl_s=100, retry=TWICE_MORE)
        clock.advance(200)
        store.report(lease, Failed(CRASH))
        assert store.get(lease.task_id).expires_at == clock.now_ms() + 100_000
        assert store.expire() == []

    def test_the_time_to_live_of_a_task_that_is_handed_back_unstarted_counts_from_its_submission(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.claimed(ttl_s=100)
        expires_at = store.get(lease.task_id).expires_at
        clock.advance(50)
        store.report(lease, HandedBack("The worker stops."))
        assert store.get(lease.task_id).expires_at == expires_at

    def test_an_expired_task_is_forgotten_by_the_purge(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued(ttl_s=0, tags=("t",))
        store.expire()
        clock.advance(10)
        assert store.purge(before=clock.now_ms() - 10_000) == []
        assert store.purge(before=clock.now_ms()) == [task_id]
        with pytest.raises(TaskNotFound):
            store.get(task_id)
        assert store.events(task_id) == []
        assert store.purge(before=clock.now_ms()) == []

    # -- logs

    def test_packed_logs_are_read_through_the_same_cursors(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started()
        lines = [LogLine(n, 1000 + n, "stderr", "error", f"é\n{n}\r\u2028") for n in range(1, 401)]
        store.report(lease, Logged(tuple(lines)), Failed(CRASH))
        unfinished = work.started()
        store.report(unfinished, Logged((lines[0],)))
        clock.advance(10)
        assert store.pack_logs(finished_before=clock.now_ms()) == [lease.task_id]
        assert store.pack_logs(finished_before=clock.now_ms()) == []
        assert store.logs(lease.task_id, limit=1000) == lines
        assert store.logs(lease.task_id, after=398) == lines[398:]
        assert store.logs(lease.task_id, after=10, limit=5) == lines[10:15]
        assert store.logs(unfinished.task_id) == [lines[0]]

    def test_lines_of_a_later_attempt_follow_the_packed_ones(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        def line(seq: int) -> LogLine:
            return LogLine(seq, 1, "stdout", "info", str(seq))

        lease = work.started()
        store.report(lease, Logged((line(1), line(2))), Failed(CRASH))
        clock.advance(1)
        store.pack_logs(finished_before=clock.now_ms())
        store.retry(lease.task_id)
        again = work.start(work.claim(lease.task_id))
        assert again.last_log_seq == 2
        store.report(again, Logged((line(3),)), Failed(CRASH))
        assert store.logs(lease.task_id) == [line(1), line(2), line(3)]
        clock.advance(1)
        store.pack_logs(finished_before=clock.now_ms())
        assert store.logs(lease.task_id, after=1) == [line(2), line(3)]

    @pytest.mark.parametrize("at_once", [7, 300, 2000], ids="{} at once".format)
    def test_a_long_log_is_read_through_the_same_cursors_however_it_came(
        self, store: Store, work: Work, clock: FakeClock, at_once: int
    ) -> None:
        lines = [
            LogLine(n, 1000 + n, "stdout", "info", f'"é\n{n}\u2028' + "x" * (n % 90)) for n in range(1, 1401)
        ]
        lease = work.started()
        assert store.last_log_seq(lease.task_id) == 0
        for start in range(0, len(lines), at_once):
            store.report(lease, Logged(tuple(lines[start : start + at_once])))

        def reads_whole() -> None:
            assert store.logs(lease.task_id, limit=5000) == lines
            assert store.last_log_seq(lease.task_id) == len(lines)
            for after, limit in ((0, 1), (510, 5), (511, 1), (512, 1), (1022, 300), (1399, 9), (1400, 9)):
                assert store.logs(lease.task_id, after, limit) == lines[after : after + limit]

        reads_whole()
        store.report(lease, Logged(tuple(lines[900:])))  # a second time
        reads_whole()
        store.report(lease, Failed(CRASH))
        clock.advance(1)
        store.pack_logs(finished_before=clock.now_ms())
        reads_whole()

    def test_what_an_attempt_logged_is_there_for_the_next_to_go_on_from(
        self, store: Store, work: Work
    ) -> None:
        lease = work.started()
        lines = tuple(LogLine(n, n, "stdout", "info", "x" * 100) for n in range(1, 601))
        store.report(lease, Logged(lines))
        store.lose(workers=["w1"])
        assert work.start(work.claim(lease.task_id)).last_log_seq == 600

    # -- the room that it takes

    def test_the_room_of_what_was_deleted_can_be_given_back(self, store: Store, work: Work) -> None:
        lease = work.started()
        noise = random.Random(1)
        lines = tuple(LogLine(n, n, "stdout", "info", noise.randbytes(500).hex()) for n in range(1, 1001))
        store.report(lease, Logged(lines), Succeeded("1"))
        kept = work.queued()
        full = store.size().bytes
        store.delete(lease.task_id)
        while store.give_back(keep_bytes=0):
            pass
        assert store.size().bytes <= full
        assert store.give_back(keep_bytes=0) == 0
        assert work.state(kept) == State.QUEUED

    # -- runtimes

    def test_the_latest_runtimes_of_each_tool_are_remembered(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        for seconds in (1, 2, 3, 4):
            lease = work.started()
            clock.advance(seconds)
            store.report(lease, Succeeded("1"))
        store.report(work.started(tool_name="index"), Succeeded("1"))
        assert [runtime.seconds for runtime in store.runtimes("relax")] == [4, 3, 2, 1]
        assert store.runtimes("relax", limit=1) == [Runtime(2, 4.0, None)]
        assert store.forget_runtimes(keep=2) == 2
        assert [runtime.seconds for runtime in store.runtimes("relax")] == [4, 3]
        assert len(store.runtimes("index")) == 1

    def test_runs_that_ended_in_the_same_moment_are_counted_one_by_one(
        self, store: Store, work: Work
    ) -> None:
        for _ in range(4):
            store.report(work.started(), Succeeded("1"))
        assert store.forget_runtimes(keep=3) == 1
        assert len(store.runtimes("relax")) == 3

    # -- the one keeper

    def test_there_is_one_keeper_until_its_time_is_over(self, store: Store, clock: FakeClock) -> None:
        assert store.keep("a", lease_s=10)
        assert not store.keep("b", lease_s=10)
        clock.advance(9)
        assert store.keep("a", lease_s=10)
        clock.advance(9)
        assert not store.keep("b", lease_s=10)
        clock.advance(1)
        assert store.keep("b", lease_s=10)
        assert not store.keep("a", lease_s=10)

    def test_a_keeper_s_time_is_not_longer_when_the_clock_is_set_back(
        self, store: Store, clock: FakeClock
    ) -> None:
        assert store.keep("a", lease_s=10)
        clock.set_wall_clock(-7200)
        assert store.keep("b", lease_s=10)

    def test_a_task_that_was_lost_goes_to_the_next_worker(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.lose(workers=["w1"])
        (again,) = store.claim([QUEUE], ["w2"])
        assert (again.task_id, again.attempt, again.worker_id) == (lease.task_id, 2, "w2")

    # -- names that can be used once

    def test_a_name_is_used_once_and_remembered_for_its_time(self, store: Store, clock: FakeClock) -> None:
        assert not store.is_spent("link:1")
        assert store.spend("link:1", for_s=60)
        assert store.is_spent("link:1")
        assert not store.spend("link:1", for_s=60)
        assert not store.is_spent("link:2")
        clock.advance(61)
        assert store.spend("link:2", for_s=60)
        assert not store.is_spent("link:1")

    # -- launches

    def test_the_launches_of_unfinished_tasks_are_known(self, store: Store, work: Work) -> None:
        waiting = work.queued(launch="a" * 32, meta={"ticket": 7})
        work.queued(launch="a" * 32)
        lease = work.started(launch="b" * 32)
        work.queued()
        assert store.launches() == {"a" * 32, "b" * 32}
        assert (store.get(waiting).launch, store.get(waiting).meta) == ("a" * 32, {"ticket": 7})
        store.report(lease, Succeeded("1"))
        assert store.launches() == {"a" * 32}
