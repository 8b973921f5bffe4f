"""Reporting: what a worker writes about its attempt, and the fence that keeps late workers out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ...errors import LeaseLost
from ...lifecycle import State
from ...reports import (
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
from ...store import Lease, Runtime, Store
from ...task import LogLine, Progress
from ..clock import FakeClock
from .base import CRASH, OVER, STOPPED, WithWork, Work


class Reporting(WithWork):
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
