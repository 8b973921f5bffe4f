"""Outboxes: webhook deliveries, and tasks handed out to an external queue."""

from __future__ import annotations

import json
from typing import Any

from backburner.core.lifecycle import State
from backburner.core.reports import Failed, Started, Succeeded
from backburner.core.retry import NO_RETRY
from backburner.store.protocol import Store
from backburner.store.webhooks import endpoint_of
from backburner.testing import FakeClock
from tests.contracts.store.base import CRASH, QUEUE, TWICE_MORE, StoreTests, Work

URL = "https://lab.example/hook?key=1"


def hooks(*states: str, url: str = URL, result_bytes: int = 0) -> dict[str, Any]:
    """What a task says that has an endpoint."""
    hook = {"url": url, "states": states, "result_bytes": result_bytes}
    return {"webhooks_json": json.dumps([hook]), "retry": NO_RETRY}


class Webhooks(StoreTests):
    def test_the_end_of_a_task_is_in_the_outbox_with_all_that_its_endpoint_is_told(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started(**hooks("succeeded", result_bytes=20))
        assert store.deliveries() == []
        clock.advance(2)
        store.report(lease, Succeeded('{"a": 1}'))
        (delivery,) = store.deliveries()
        assert (delivery.task_id, delivery.owner) == (lease.task_id, "ann")
        assert (delivery.url, delivery.endpoint, delivery.attempts) == (URL, "https://lab.example", 0)
        told = json.loads(delivery.body)
        assert told["type"] == "task.succeeded"
        assert told["data"]["task_id"] == lease.task_id
        assert (told["data"]["tool"], told["data"]["state"]) == ("relax", "succeeded")
        assert (told["data"]["result"], told["data"]["result_uri"]) == (
            {"a": 1},
            f"task://{lease.task_id}/result",
        )
        assert told["data"]["submitted_at"] < told["data"]["ended_at"] == told["timestamp"]

    def test_a_task_without_endpoints_and_an_end_that_none_wants_to_hear_of_leave_the_outbox_empty(
        self, store: Store, work: Work
    ) -> None:
        store.report(work.started(), Succeeded("1"))
        store.report(work.started(**hooks("failed")), Succeeded("1"))
        again = work.started(**(hooks("failed") | {"retry": TWICE_MORE}))
        store.report(again, Failed(CRASH))
        assert (work.state(again.task_id), store.deliveries()) == (State.QUEUED, [])
        assert not store.has_deliveries()

    def test_every_way_to_end_is_told_once(self, store: Store, work: Work, clock: FakeClock) -> None:
        wanted = hooks("succeeded", "failed", "cancelled", "timed_out", "expired")
        failed, lost = work.started(**wanted), work.started(**wanted)
        store.report(failed, Failed(CRASH))
        store.lose(silent=[lease for lease in store.leases() if lease.task_id == lost.task_id])
        cancelled = work.queued(**wanted)
        store.cancel(cancelled, reason="enough")
        expired, done = (work.queued(**wanted, ttl_s=1) for _ in range(2))
        store.report(work.claim(done), Started(), Succeeded("null"))
        clock.advance(2)
        assert set(store.expire()) == {expired, done}
        told = [json.loads(delivery.body) for delivery in store.deliveries()]
        ends = {
            one["data"]["task_id"]: (one["type"], one["data"].get("error", {}).get("type")) for one in told
        }
        assert len(told) == len(ends)
        assert ends == {
            failed.task_id: ("task.failed", "tool_error"),
            lost.task_id: ("task.failed", "worker_lost"),
            cancelled: ("task.cancelled", "cancelled"),
            expired: ("task.expired", None),
            done: ("task.succeeded", None),
        }

    def test_a_delivery_is_leased_once_and_due_again_when_its_sender_is_silent(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        store.report(work.started(**hooks("succeeded")), Succeeded("1"))
        (due,) = store.due_deliveries()
        assert store.lease_delivery(due, 20)
        assert not store.lease_delivery(due, 20), "another sender had found it too"
        assert store.due_deliveries() == []
        clock.advance(21)
        (again,) = store.due_deliveries()
        assert (again.delivery_id, again.body, again.attempts) == (due.delivery_id, due.body, 1)

    def test_what_arrived_is_gone_and_in_the_trail_of_its_task(self, store: Store, work: Work) -> None:
        lease = work.started(**hooks("succeeded"))
        store.report(lease, Succeeded("1"))
        (due,) = store.due_deliveries()
        store.delivered(due)
        store.delivered(due)
        assert (store.deliveries(), store.has_deliveries()) == ([], False)
        *_, event = store.events(lease.task_id)
        assert (event.signal, event.from_state, event.to_state) == ("told", State.SUCCEEDED, State.SUCCEEDED)
        assert event.detail == {"endpoint": "https://lab.example", "webhook_id": due.delivery_id}
        assert work.signals(lease.task_id).count("told") == 1

    def test_what_did_not_arrive_waits_and_once_it_is_given_up_only_a_person_brings_it_back(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started(**hooks("succeeded"))
        store.report(lease, Succeeded("1"))
        (due,) = store.due_deliveries()
        store.lease_delivery(due, 20)
        store.not_delivered(due, "it answered 503", 5)
        assert store.due_deliveries() == []
        assert store.has_deliveries()
        clock.advance(6)
        (again,) = store.due_deliveries()
        assert again.last_error == "it answered 503"
        store.not_delivered(again, "it answered 400", None)
        assert (store.due_deliveries(), store.has_deliveries()) == ([], False)
        assert store.events(lease.task_id)[-1].signal == "not_told"
        assert store.events(lease.task_id)[-1].detail["error"] == "it answered 400"
        (given_up,) = store.deliveries(owner="ann")
        assert given_up.due_at is None
        assert store.deliveries(owner="bob") == []
        assert not store.retry_delivery(given_up.delivery_id, owner="bob")
        assert store.retry_delivery(given_up.delivery_id, owner="ann")
        assert [one.attempts for one in store.due_deliveries()] == [0]

    def test_an_endpoint_that_does_not_answer_is_left_alone_and_others_are_not(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        other = "https://other.example:8443/x"
        for url in (URL, URL, other):
            store.report(work.started(**hooks("succeeded", url=url)), Succeeded("1"))
        store.put_off_deliveries(endpoint_of(URL), 30)
        assert [one.url for one in store.due_deliveries()] == [other]
        clock.advance(31)
        assert len(store.due_deliveries()) == 3

    def test_what_is_to_be_told_of_a_task_goes_with_it(self, store: Store, work: Work) -> None:
        lease = work.started(**hooks("succeeded"))
        store.report(lease, Succeeded("1"))
        store.delete(lease.task_id)
        assert (store.deliveries(), store.has_deliveries()) == ([], False)

    def test_a_delivery_that_a_clock_put_off_which_was_set_back_since_is_due(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        store.report(work.started(**hooks("succeeded")), Succeeded("1"))
        clock.advance(86_400)
        (due,) = store.due_deliveries()
        store.not_delivered(due, "it answered 503", 5)
        clock.advance(-86_400)
        assert [one.delivery_id for one in store.due_deliveries()] == [due.delivery_id]


HERE = ("celery", [QUEUE])


class HandOuts(StoreTests):
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
