"""Reports of workers: fencing, retries, and batches in one commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backburner.core.lifecycle import State
from backburner.core.reports import (
    Asked,
    Cancelled,
    Change,
    Checkpointed,
    Failed,
    HandedBack,
    Logged,
    Progressed,
    Started,
    Stopping,
    Succeeded,
    TimedOut,
)
from backburner.core.retry import Retry
from backburner.core.task import LogLine, Progress
from backburner.errors import LeaseLost
from backburner.store.protocol import ANYTHING, ClaimRequest, Lease, Runtime, Store
from backburner.testing import FakeClock
from tests.contracts.store.base import (
    CRASH,
    LOST,
    OVER,
    QUEUE,
    STOPPED,
    TWICE_MORE,
    StoreTests,
    Work,
    new_task,
)


class Reports(StoreTests):
    def test_a_start_is_kept_with_its_process_and_its_time_limit(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.claimed()
        clock.advance(1)
        store.report(lease, Started(pid=77, timeout_at=clock.now_ms() + 9000))
        task = store.get(lease.task_id)
        assert (task.state, task.started_at, task.timeout_at) == (
            State.RUNNING,
            clock.now_ms(),
            clock.now_ms() + 9000,
        )
        (attempt,) = store.attempts(lease.task_id)
        assert (attempt.pid, attempt.started_at) == (77, clock.now_ms())

    def test_the_latest_progress_is_kept_and_counts_as_a_sign_of_life(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started()
        store.report(lease, Progressed(Progress(percent=10)))
        clock.advance(4)
        progress = Progress(50, 5, 10, "relaxation", "halfway é", {"energy": -1.5})
        store.report(lease, Progressed(progress))
        task = store.get(lease.task_id)
        assert task.progress == progress
        assert task.heartbeat_at == task.updated_at == clock.now_ms()

    def test_a_result_is_kept_and_its_runtime_is_remembered(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started({"a": 1}, hint_s=4.0)
        clock.advance(2.5)
        store.report(lease, Succeeded('{"energy":-1.5}', {"cpu_s": 2}))
        task = store.get(lease.task_id)
        assert (task.state, task.result, dict(task.metrics)) == ("succeeded", {"energy": -1.5}, {"cpu_s": 2})
        assert (task.completed_at, task.failures, task.error) == (clock.now_ms(), 0, None)
        (attempt,) = store.attempts(lease.task_id)
        assert (attempt.outcome, attempt.ended_at) == ("succeeded", clock.now_ms())
        assert store.runtimes("relax") == [Runtime(len('{"a":1}'), 2.5, 4.0)]

    def test_a_failure_without_a_further_try_ends_the_task(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.report(lease, Failed(CRASH, {"cpu_s": 1}))
        task = store.get(lease.task_id)
        assert (task.state, task.error, task.failures) == (State.FAILED, CRASH, 1)
        assert dict(task.metrics) == {"cpu_s": 1}
        assert store.attempts(lease.task_id)[0].error == CRASH
        assert store.runtimes("relax") == []

    def test_a_time_out_ends_the_task(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.report(lease, TimedOut(OVER))
        task = store.get(lease.task_id)
        assert (task.state, task.error) == (State.TIMED_OUT, OVER)

    def test_a_cancel_that_nobody_asked_for_is_a_failure(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.report(lease, Cancelled(STOPPED))
        assert work.state(lease.task_id) == State.FAILED

    def test_many_changes_are_written_in_order_in_one_report(self, store: Store, work: Work) -> None:
        lease = work.claimed()
        line = LogLine(1, 5, "stderr", "warning", "hm")
        artifact = work.artifact(lease)
        store.report(
            lease, Started(), Logged((line,)), artifact, Checkpointed('{"step":3}'), Succeeded('"done"')
        )
        assert store.get(lease.task_id).result == "done"
        assert store.logs(lease.task_id) == [line]
        assert store.artifacts(lease.task_id) == [artifact.artifact]
        assert store.artifact(artifact.artifact.artifact_id) == artifact.artifact
        assert work.signals(lease.task_id) == ["submit", "claim", "start", "succeed"]

    def test_a_report_that_is_refused_halfway_changes_nothing(self, store: Store, work: Work) -> None:
        lease = work.started()
        before = work.everything(lease.task_id)
        with pytest.raises(LeaseLost):
            store.report(lease, Succeeded("1"), Progressed(Progress(percent=1)))
        assert work.everything(lease.task_id) == before

    def test_what_is_reported_twice_is_kept_once(self, store: Store, work: Work) -> None:
        lease = work.started()
        changes = (
            Logged((LogLine(1, 5, "stdout", "info", "hi"),)),
            work.artifact(lease),
            Asked((work.question(lease, "colour"),)),
        )
        store.report(lease, *changes)
        store.report(lease, *changes)
        assert len(store.logs(lease.task_id)) == 1
        assert len(store.artifacts(lease.task_id)) == 1
        assert len(store.input_requests(lease.task_id)) == 1

    def test_the_next_attempt_gets_the_checkpoint_and_the_end_of_the_log(
        self, store: Store, work: Work
    ) -> None:
        lease = work.started()
        lines = tuple(LogLine(n, 1, "stdout", "info", "x") for n in (1, 2, 3))
        store.report(lease, Checkpointed('{"step":1}'))
        store.report(lease, Checkpointed('{"step":2}'), Logged(lines), HandedBack("leaving"))
        again = work.claim(lease.task_id, "w2")
        assert (again.checkpoint, again.last_log_seq) == ({"step": 2}, 3)

    def test_a_finished_task_leaves_no_checkpoint(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.report(lease, Checkpointed("7"), Failed(CRASH))
        store.retry(lease.task_id)
        assert work.claim(lease.task_id).checkpoint is None

    # -- the fence

    @pytest.mark.parametrize(
        "change",
        [
            Started(pid=1),
            Progressed(Progress(percent=99)),
            Logged((LogLine(9, 1, "stdout", "info", "late"),)),
            Checkpointed("1"),
            Stopping(),
            Succeeded('"late"'),
            Failed(CRASH),
            TimedOut(OVER),
            Cancelled(STOPPED),
            HandedBack("late"),
        ],
        ids=lambda change: type(change).__name__,
    )
    @pytest.mark.parametrize("since", ["claimed again", "ended", "deleted"])
    def test_a_late_worker_changes_nothing(
        self, store: Store, work: Work, change: Change, since: str
    ) -> None:
        late = self._overtaken(store, work, since)
        known = () if since == "deleted" else (late.task_id,)
        before = work.everything(*known)
        with pytest.raises(LeaseLost):
            store.report(late, change)
        assert store.report_all([(late, [change])]) == [late]
        assert work.everything(*known) == before

    def _overtaken(self, store: Store, work: Work, since: str) -> Lease:
        late = work.started()
        if since == "claimed again":
            store.report(late, HandedBack("leaving"))
            work.start(work.claim(late.task_id, "w2"))
        else:
            store.report(late, Succeeded("1"))
            if since == "deleted":
                store.delete(late.task_id)
        return late

    def test_a_late_workers_artifacts_and_questions_are_refused_too(self, store: Store, work: Work) -> None:
        late = self._overtaken(store, work, "claimed again")
        before = work.everything(late.task_id)
        for change in (work.artifact(late), Asked((work.question(late, "colour"),))):
            with pytest.raises(LeaseLost):
                store.report(late, change)
        assert work.everything(late.task_id) == before

    def test_many_reports_in_one_commit_say_which_were_late(self, store: Store, work: Work) -> None:
        late, first, second = self._overtaken(store, work, "ended"), work.started(), work.started()
        lost = store.report_all(
            [
                (first, [Succeeded("1")]),
                (late, [Succeeded("2")]),
                (second, [Progressed(Progress(percent=5)), Failed(CRASH)]),
            ]
        )
        assert lost == [late]
        assert (work.state(first.task_id), work.state(second.task_id)) == (State.SUCCEEDED, State.FAILED)

    def test_a_lease_is_known_by_its_attempt_and_not_by_its_worker(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.report(replace(lease, worker_id="another name"), Progressed(Progress(percent=3)))
        assert store.get(lease.task_id).progress == Progress(percent=3)


class Retries(StoreTests):
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


class Batches(StoreTests):
    def test_a_turn_ends_submits_and_leases(self, store: Store, work: Work, clock: FakeClock) -> None:
        lease = work.claimed()
        new = new_task(clock, {"a": 1})
        turn = store.commit_batch(
            [(lease, [Started(pid=7), Succeeded("1")])], [(new, None)], [ClaimRequest(QUEUE, ["w1", "w2"])]
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
        turn = store.commit_batch()
        assert (turn.lost, turn.submitted, turn.leases) == ([], [], [])
        assert work.everything(task_id) == before

    def test_tasks_that_wait_already_come_before_one_that_is_new(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        waits = work.queued()
        urgent = new_task(clock, priority=5)
        new = new_task(clock)
        turn = store.commit_batch((), [(new, None), (urgent, None)], [ClaimRequest(QUEUE, ["w1", "w2"])])
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
        turn = store.commit_batch(
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
        turn = store.commit_batch(
            [(lease, [Started(pid=7), Failed(CRASH)])], (), [ClaimRequest(QUEUE, ["w2"])]
        )
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
            turn = store.commit_batch(reports, (), [ClaimRequest(QUEUE, ["w1"])], fair=True)
            ((lease,),) = turn.leases
            order.append(lease.task_id)
            reports = [(lease, [Started(pid=7), Succeeded("1")])]
        assert order == [first, other, second]

    def test_a_turn_says_when_a_task_becomes_ready_by_itself(self, store: Store, work: Work) -> None:
        lease = work.claimed(retry=Retry(max_attempts=2, backoff_s=3, on=("*",)))
        turn = store.commit_batch(
            [(lease, [Started(pid=7), Failed(CRASH)])], (), [ClaimRequest(QUEUE, ["w2"])]
        )
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
        turn = store.commit_batch(
            [ended], (), [ClaimRequest(QUEUE, ["w1"], wanted), ClaimRequest(QUEUE, ["w2"], "tsk_nobody")]
        )
        assert [[each.task_id for each in leases] for leases in turn.leases] == [[wanted], []]
        assert work.state(lease.task_id) is State.SUCCEEDED
        again = store.commit_batch((), (), [ClaimRequest(QUEUE, ["w3"], wanted)])
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
            turn = store.commit_batch([(lease, [Started(pid=7), Succeeded("1")])], [(new, None)], watch=own)
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
