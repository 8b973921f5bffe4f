"""Control by callers: cancel, answers, manual retry, delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backburner.core.lifecycle import State
from backburner.core.reports import Asked, Cancelled, Failed, Logged, Started, Stopping, Succeeded, TimedOut
from backburner.core.retry import NO_RETRY
from backburner.core.task import LogLine, TaskError
from backburner.errors import NotAllowedNow, TaskNotFound
from backburner.store.protocol import Store, TaskQuery
from backburner.testing import FakeClock
from tests.contracts.store.base import CRASH, OVER, QUEUE, STOPPED, TWICE_MORE, StoreTests, Work


class Control(StoreTests):
    # -- cancel

    def test_a_queued_task_is_cancelled_at_once(self, store: Store, work: Work, clock: FakeClock) -> None:
        task_id = work.queued()
        task = store.cancel(task_id, reason="no longer needed")
        assert task == store.get(task_id)
        assert (task.state, task.cancel_requested, task.cancel_reason) == (
            State.CANCELLED,
            True,
            "no longer needed",
        )
        assert task.completed_at == clock.now_ms()
        assert task.error is not None
        assert task.error.type == "cancelled"
        assert store.claim([QUEUE], ["w1"]) == []

    def test_a_task_that_waits_for_its_retry_is_cancelled_at_once(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started(retry=TWICE_MORE)
        store.report(lease, Failed(CRASH))
        assert store.cancel(lease.task_id).state is State.CANCELLED
        clock.advance(100)
        assert store.make_ready() == []

    @pytest.mark.parametrize("how", ["claimed", "started", "asking"])
    def test_a_task_under_way_is_asked_to_stop_and_its_worker_confirms(
        self, store: Store, work: Work, how: str
    ) -> None:
        lease = getattr(work, how)()
        assert store.cancel(lease.task_id, reason="enough").state is State.CANCEL_REQUESTED
        store.report(lease, Stopping())
        assert work.state(lease.task_id) == State.CANCELLING
        store.report(lease, Cancelled(STOPPED))
        task = store.get(lease.task_id)
        assert (task.state, task.cancel_reason) == (State.CANCELLED, "enough")
        assert task.error == TaskError("cancelled", "Cancelled: enough")

    @pytest.mark.parametrize("stopping", [False, True])
    def test_a_task_that_finished_first_stays_succeeded(
        self, store: Store, work: Work, stopping: bool
    ) -> None:
        lease = work.started()
        store.cancel(lease.task_id)
        if stopping:
            store.report(lease, Stopping())
        store.report(lease, Succeeded('"in time"'))
        assert (work.state(lease.task_id), store.get(lease.task_id).result) == (State.SUCCEEDED, "in time")

    @pytest.mark.parametrize("outcome", [Failed(CRASH), TimedOut(OVER)], ids=["failed", "timed out"])
    def test_whatever_else_happens_while_it_is_cancelled_it_ends_as_cancelled(
        self, store: Store, work: Work, outcome: Failed | TimedOut
    ) -> None:
        lease = work.started(retry=TWICE_MORE)
        store.cancel(lease.task_id)
        store.report(lease, outcome)
        assert work.state(lease.task_id) == State.CANCELLED

    def test_a_cancel_before_the_start_leaves_it_cancelled(self, store: Store, work: Work) -> None:
        lease = work.claimed()
        store.cancel(lease.task_id)
        work.start(lease)
        assert work.state(lease.task_id) == State.CANCEL_REQUESTED

    def test_cancelling_twice_changes_nothing_more(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.cancel(lease.task_id, reason="first")
        before = work.everything(lease.task_id)
        assert store.cancel(lease.task_id, reason="second").cancel_reason == "first"
        assert work.everything(lease.task_id) == before

    @pytest.mark.parametrize("outcome", [Succeeded("1"), Failed(CRASH), TimedOut(OVER)])
    def test_cancelling_a_finished_task_changes_nothing(
        self, store: Store, work: Work, outcome: Succeeded | Failed | TimedOut
    ) -> None:
        lease = work.started()
        store.report(lease, outcome)
        before = work.everything(lease.task_id)
        assert store.cancel(lease.task_id) == before[lease.task_id][0]
        assert work.everything(lease.task_id) == before

    # -- answers

    def test_a_question_makes_the_task_wait_and_its_answer_lets_it_go_on(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.asking("colour")
        assert work.state(lease.task_id) == State.INPUT_REQUIRED
        clock.advance(1)
        task = store.answer(lease.task_id, {"colour": ("accept", {"name": "rot"})})
        assert task.state is State.RUNNING
        (question,) = store.input_requests(lease.task_id)
        assert (question.action, question.content, question.answered_at) == (
            "accept",
            {"name": "rot"},
            clock.now_ms(),
        )
        assert work.signals(lease.task_id)[-2:] == ["ask", "answer"]

    def test_a_partial_answer_is_kept_and_the_task_goes_on_waiting(self, store: Store, work: Work) -> None:
        lease = work.asking("colour", "size")
        assert store.answer(lease.task_id, {"size": ("decline", None)}).state is State.INPUT_REQUIRED
        by_key = {question.key: question for question in store.input_requests(lease.task_id)}
        assert (by_key["size"].action, by_key["colour"].action) == ("decline", None)
        assert store.answer(lease.task_id, {"colour": ("cancel", None)}).state is State.RUNNING

    def test_unknown_and_answered_keys_are_passed_over(self, store: Store, work: Work) -> None:
        lease = work.asking("colour", "size")
        store.answer(lease.task_id, {"size": ("accept", 1)})
        before = work.everything(lease.task_id)
        store.answer(lease.task_id, {"size": ("accept", 2), "unknown": ("accept", 3)})
        assert work.everything(lease.task_id) == before

    def test_answers_after_the_end_change_nothing(self, store: Store, work: Work) -> None:
        lease = work.asking()
        store.report(lease, TimedOut(OVER))
        before = work.everything(lease.task_id)
        store.answer(lease.task_id, {"colour": ("accept", 1)})
        assert work.everything(lease.task_id) == before

    def test_a_task_can_ask_again(self, store: Store, work: Work) -> None:
        lease = work.asking("colour")
        store.report(lease, Asked((work.question(lease, "size"),)))
        store.answer(lease.task_id, {"colour": ("accept", 1)})
        assert work.state(lease.task_id) == State.INPUT_REQUIRED
        store.answer(lease.task_id, {"size": ("accept", 1)})
        assert work.state(lease.task_id) == State.RUNNING

    # -- another try by hand

    @pytest.mark.parametrize(
        ("end", "state"),
        [
            ("failed", State.FAILED),
            ("timed out", State.TIMED_OUT),
            ("cancelled", State.CANCELLED),
            ("cancelled before its retry", State.CANCELLED),
        ],
    )
    def test_a_task_that_ended_badly_can_be_run_once_more(
        self, store: Store, work: Work, end: str, state: State
    ) -> None:
        lease = work.started(retry=NO_RETRY if end == "failed" else TWICE_MORE)
        if end == "cancelled":
            store.cancel(lease.task_id)
        outcome = TimedOut(OVER) if end == "timed out" else Failed(TaskError("x", "y"))
        store.report(lease, outcome)
        if end == "cancelled before its retry":
            store.cancel(lease.task_id)
        assert work.state(lease.task_id) == state
        task = store.retry(lease.task_id)
        assert (task.state, task.failures, task.error, task.cancel_requested) == (
            State.QUEUED,
            0,
            None,
            False,
        )
        assert (task.completed_at, task.ready_at, task.cancel_reason) == (None, None, None)
        again = work.start(work.claim(lease.task_id))
        assert again.attempt == 2
        store.report(again, Succeeded("1"))
        assert work.state(lease.task_id) == State.SUCCEEDED

    @pytest.mark.parametrize("how", ["queued", "started", "succeeded"])
    def test_any_other_task_cannot(self, store: Store, work: Work, how: str) -> None:
        task_id = _brought_to(store, work, how)
        before = work.everything(task_id)
        with pytest.raises(NotAllowedNow):
            store.retry(task_id)
        assert work.everything(task_id) == before

    # -- telling a model

    def test_a_model_is_told_once_of_each_end(self, store: Store, work: Work) -> None:
        lease = work.started(retry=NO_RETRY)
        store.report(lease, Failed(CRASH))
        task_id = lease.task_id
        assert [store.tell_model(task_id), store.tell_model(task_id, "ann")] == [True, False]
        store.retry(task_id)
        store.report(work.claim(task_id), Started(1), Succeeded("1"))
        assert [store.tell_model(task_id), store.tell_model(task_id)] == [True, False]
        signals = [event.signal for event in store.events(task_id)]
        assert signals.count("told_model") == 2
        assert work.state(task_id) is State.SUCCEEDED

    # -- delete

    def test_a_deleted_task_leaves_no_trace(self, store: Store, work: Work) -> None:
        lease = work.asking(tags=("t",), external_id="e", idempotency_key="k")
        artifact = work.artifact(lease)
        store.report(lease, Logged((LogLine(1, 1, "stdout", "info", "x"),)), artifact, Failed(CRASH))
        store.delete(lease.task_id)
        with pytest.raises(TaskNotFound):
            store.get(lease.task_id)
        assert store.events(lease.task_id) == []
        assert store.attempts(lease.task_id) == []
        assert store.logs(lease.task_id) == []
        assert store.artifacts(lease.task_id) == []
        assert store.input_requests(lease.task_id) == []
        assert store.find("e", "ann") is None
        assert store.page(TaskQuery(tags_any=("t",))) == []
        assert work.submit(idempotency_key="k").created

    @pytest.mark.parametrize("how", ["queued", "started"])
    def test_an_unfinished_task_cannot_be_deleted(self, store: Store, work: Work, how: str) -> None:
        task_id = _brought_to(store, work, how)
        before = work.everything(task_id)
        with pytest.raises(NotAllowedNow):
            store.delete(task_id)
        assert work.everything(task_id) == before

    # -- owners

    @pytest.mark.parametrize(
        "steer",
        [
            lambda store, task_id: store.cancel(task_id, "bob"),
            lambda store, task_id: store.retry(task_id, "bob"),
            lambda store, task_id: store.delete(task_id, "bob"),
            lambda store, task_id: store.answer(task_id, {"colour": ("accept", 1)}, "bob"),
            lambda store, task_id: store.tell_model(task_id, "bob"),
        ],
        ids=["cancel", "retry", "delete", "answer", "tell_model"],
    )
    def test_nobody_steers_anothers_task(
        self, store: Store, work: Work, steer: Callable[[Store, str], object]
    ) -> None:
        for task_id in (work.asking().task_id, _brought_to(store, work, "failed")):
            before = work.everything(task_id)
            with pytest.raises(TaskNotFound):
                steer(store, task_id)
            assert work.everything(task_id) == before


def _brought_to(store: Store, work: Work, state: str) -> str:
    if state == "queued":
        return work.queued()
    lease = work.started()
    if state == "succeeded":
        store.report(lease, Succeeded("1"))
    if state == "failed":
        store.report(lease, Failed(CRASH))
    return lease.task_id
