"""Tasks that a queue outside is given: each once for an attempt, and again when its job is gone."""

from __future__ import annotations

from ...reports import Failed, Succeeded
from ...store import Store
from ..clock import FakeClock
from .base import CRASH, QUEUE, TWICE_MORE, WithWork, Work

HERE = ("celery", [QUEUE])


class HandingOut(WithWork):
    def test_a_ready_task_is_handed_out_once_for_each_attempt_and_best_first(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        low, high = work.queued(), work.queued(priority=5, retry=TWICE_MORE)
        assert store.begin_hand_out("celery", ["another"]) == []
        assert [task.task_id for task in store.begin_hand_out(*HERE, limit=1)] == [high]
        assert [task.task_id for task in store.begin_hand_out(*HERE)] == [low]
        assert store.begin_hand_out(*HERE) == []
        store.report(work.start(work.claim(high)), Failed(CRASH))
        assert store.begin_hand_out(*HERE) == []
        clock.advance(10)
        (again,) = store.begin_hand_out(*HERE)
        assert (again.task_id, again.attempt) == (high, 1)
        assert {each.task_id: each.attempt for each in store.hand_outs("celery")} == {low: 1, high: 2}
        assert store.hand_outs("dramatiq") == []

    def test_a_new_task_may_count_as_handed_out_by_its_submitter(self, store: Store, work: Work) -> None:
        task_id = work.queued(handed_to="celery")
        assert store.begin_hand_out(*HERE) == []
        (out,) = store.hand_outs("celery")
        assert (out.task_id, out.attempt, out.job, out.waits) == (task_id, 1, "", True)
        store.take_back([task_id])
        assert [task.task_id for task in store.begin_hand_out(*HERE)] == [task_id]

    def test_only_those_that_are_named_are_handed_out(self, store: Store, work: Work) -> None:
        work.queued()
        wanted = work.queued()
        (task,) = store.begin_hand_out(*HERE, task_ids=[wanted, "tsk_nobody"])
        assert task.task_id == wanted

    def test_those_that_are_left_for_later_do_not_hold_up_others(self, store: Store, work: Work) -> None:
        later, now = work.queued(priority=5), work.queued()
        assert [task.task_id for task in store.begin_hand_out(*HERE, but_not=[later], limit=1)] == [now]
        assert [task.task_id for task in store.begin_hand_out(*HERE)] == [later]

    def test_one_that_its_queue_refused_says_why_and_is_tried_again(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued()
        store.begin_hand_out(*HERE)
        store.not_handed_out([task_id], "The broker does not answer.", 5000)
        assert store.get(task_id).waits_for == "The broker does not answer."
        assert (store.begin_hand_out(*HERE), store.hand_outs("celery")) == ([], [])
        clock.advance(5)
        assert [task.task_id for task in store.begin_hand_out(*HERE)] == [task_id]
        store.handed_out({task_id: "job 7"})
        assert store.get(task_id).waits_for is None
        (out,) = store.hand_outs("celery")
        assert (out.job, out.waits, out.ended) == ("job 7", True, 0)

    def test_what_is_taken_back_is_handed_out_again_only_while_it_waits(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        waiting, begun, over = work.queued(), work.queued(), work.queued()
        store.begin_hand_out(*HERE)
        work.start(work.claim(begun))
        store.report(work.start(work.claim(over)), Succeeded("1"))
        assert {each.task_id: each.waits for each in store.hand_outs("celery")} == {
            waiting: True,
            begun: False,
            over: False,
        }
        store.take_back([waiting, begun, over], ended=True)
        assert [each.task_id for each in store.hand_outs("celery")] == [begun]
        clock.advance(0.001)
        assert [task.task_id for task in store.begin_hand_out(*HERE)] == [waiting]
        ended = {each.task_id: each.ended for each in store.hand_outs("celery")}
        assert ended == {begun: 0, waiting: 1}
