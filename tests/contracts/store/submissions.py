"""Submissions: stored fields, idempotency, admission, open calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from backburner.core.lifecycle import State
from backburner.core.reports import Succeeded
from backburner.core.retry import Retry
from backburner.core.task import Answer, Caller, Resources
from backburner.errors import IdempotencyConflict, QueueFull, TaskNotFound
from backburner.store import open_store
from backburner.store.protocol import Note, OpenCall, QueueDepth, Store
from backburner.testing import FakeClock
from tests.contracts.store.base import QUEUE, StoreTests, Work, new_task


class Submissions(StoreTests):
    def test_a_submitted_task_is_read_back_as_it_was_given(self, store: Store, clock: FakeClock) -> None:
        new = new_task(
            clock,
            {"structure": "Si8", "größe": [1, 2.5, None, True]},
            target="module:lab#lab",
            priority=-3,
            tags=("project:x", "urgent"),
            ttl_s=60.5,
            resources=Resources(max_runtime_s=1.5, cpu=2, memory_mb=512, scratch_mb=9),
            retry=Retry(max_attempts=5, backoff_s=0.5, on=("worker_lost", "OSError")),
            idempotency_key="key",
            external_id="ext",
            parent_id="tsk_parent",
            hint_s=3.0,
            estimate_s=4.5,
            traceparent="00-aa-bb-01",
            tracestate="vendor=1",
            isolation="fresh",
            result_kind="call_tool_result",
            answers={"colour": Answer("accept", {"name": "red"}), "size": Answer("decline")},
            caller=Caller("shop", "https://issuer", "ann", ("read", "write")),
            meta={"ticket": 7, "nested": {"a": [1]}},
        )
        returned = store.submit(new)
        assert returned.created
        assert returned.position == 1
        task = store.get(new.task_id)
        assert task == returned.task
        assert task.state is State.QUEUED
        assert task.inputs == {"structure": "Si8", "größe": [1, 2.5, None, True]}
        assert (task.owner, task.tool_name, task.queue, task.target) == (
            "ann",
            "relax",
            QUEUE,
            "module:lab#lab",
        )
        assert (task.priority, task.tags, task.ttl_s) == (-3, ("project:x", "urgent"), 60.5)
        assert (task.resources, task.retry, task.max_attempts) == (new.resources, new.retry, 5)
        assert (task.idempotency_key, task.external_id, task.parent_id) == ("key", "ext", "tsk_parent")
        assert (task.hint_s, task.estimate_s) == (3.0, 4.5)
        assert (task.traceparent, task.tracestate) == ("00-aa-bb-01", "vendor=1")
        assert (task.isolation, task.result_kind) == ("fresh", "call_tool_result")
        assert (task.answers, task.caller, task.meta) == (new.answers, new.caller, new.meta)
        assert (task.submitted_at, task.expires_at) == (clock.now_ms(), clock.now_ms() + 60_500)
        assert (task.attempt, task.failures, task.result, task.error) == (0, 0, None, None)

    def test_a_callers_meta_is_its_own_whatever_its_keys_are(self, store: Store, work: Work) -> None:
        own = {"isolation": "mine", "result": "mcp", "answers": [1], "caller": "x", "own": {"own": 1}, "a": 2}
        task = store.get(work.queued(meta=own))
        assert task.meta == own
        assert (task.isolation, task.result_kind, task.answers, task.caller) == ("warm", "value", {}, None)

    def test_the_first_line_of_the_trail_says_that_it_was_submitted(self, store: Store, work: Work) -> None:
        (event,) = store.events(work.queued())
        assert (event.signal, event.from_state, event.to_state, event.attempt) == (
            "submit",
            None,
            "queued",
            0,
        )

    def test_a_task_is_there_when_the_store_is_opened_again(
        self, store: Store, store_url: str, work: Work
    ) -> None:
        task_id = work.queued({"a": 1})
        reopened = open_store(store_url)
        try:
            assert reopened.get(task_id).inputs == {"a": 1}
        finally:
            reopened.close()

    def test_an_unknown_task_is_not_found(self, store: Store, clock: FakeClock) -> None:
        with pytest.raises(TaskNotFound):
            store.get(new_task(clock).task_id)

    def test_anothers_task_is_not_found_and_anyones_is(self, store: Store, work: Work) -> None:
        task_id = work.queued(owner="ann")
        assert store.get(task_id, "ann") == store.get(task_id)
        with pytest.raises(TaskNotFound):
            store.get(task_id, "bob")

    # -- idempotency

    def test_the_same_key_and_inputs_give_the_first_task_back(self, store: Store, work: Work) -> None:
        first = work.submit({"a": 1}, idempotency_key="k")
        second = work.submit({"a": 1}, idempotency_key="k")
        assert first.created
        assert not second.created
        assert second.task == first.task
        assert second.position == 1
        assert store.queue_depths() == [QueueDepth(QUEUE, queued=1, leased=0)]

    def test_the_same_key_with_other_inputs_is_a_conflict_and_writes_nothing(self, work: Work) -> None:
        first = work.queued({"a": 1}, idempotency_key="k")
        before = work.everything(first)
        with pytest.raises(IdempotencyConflict) as conflict:
            work.submit({"a": 2}, idempotency_key="k")
        assert conflict.value.details["task_id"] == first
        assert work.everything(first) == before

    def test_a_key_belongs_to_one_owner_and_one_tool(self, work: Work) -> None:
        tasks = [
            work.submit({"a": 1}, idempotency_key="k"),
            work.submit({"a": 2}, idempotency_key="k", owner="bob"),
            work.submit({"a": 3}, idempotency_key="k", tool_name="index"),
        ]
        assert [submission.created for submission in tasks] == [True, True, True]

    def test_the_same_key_finds_a_finished_task(self, store: Store, work: Work) -> None:
        first = work.queued({"a": 1}, idempotency_key="k")
        store.cancel(first)
        again = work.submit({"a": 1}, idempotency_key="k")
        assert (again.task.task_id, again.created, again.position) == (first, False, None)

    def test_an_external_id_names_one_task_of_its_owner(self, store: Store, work: Work) -> None:
        task_id = work.queued({"a": 1}, external_id="job-7")
        assert work.submit({"a": 1}, external_id="job-7").task.task_id == task_id
        found = store.find("job-7", "ann")
        assert found is not None
        assert found.task_id == task_id
        assert store.find("job-7", "bob") is None
        assert store.find("job-8", "ann") is None
        with pytest.raises(IdempotencyConflict):
            work.submit({"a": 2}, external_id="job-7")

    # -- one more try by a caller that does not know whether the first one arrived

    def test_a_task_that_is_handed_in_twice_is_kept_once_and_is_new_both_times(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        new = new_task(clock, {"a": 1}, tags=("blue",))
        first = store.submit(new)
        before = work.everything(new.task_id)
        assert store.submit(new) == first
        assert first.created
        assert work.everything(new.task_id) == before

    def test_a_task_that_is_handed_in_again_is_given_back_as_it_is_by_now(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        new = new_task(clock, {"a": 1}, idempotency_key="k", external_id="job-7")
        store.submit(new)
        work.claim(new.task_id)
        again = store.submit(new)
        assert (again.created, again.position, again.task) == (True, None, store.get(new.task_id))
        assert work.signals(new.task_id) == ["submit", "claim"]

    def test_a_queue_that_is_full_by_a_task_still_takes_it_once_more(
        self, store: Store, clock: FakeClock
    ) -> None:
        new = new_task(clock)
        first = store.submit(new, queue_cap=1)
        assert store.submit(new, queue_cap=1) == first

    def test_an_id_that_stands_for_something_else_is_refused_and_writes_nothing(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        new = new_task(clock, {"a": 1})
        store.submit(new)
        before = work.everything(new.task_id)
        for other in (
            new_task(clock, {"a": 2}, task_id=new.task_id),
            new_task(clock, {"a": 1}, task_id=new.task_id, owner="bob"),
        ):
            with pytest.raises(IdempotencyConflict):
                store.submit(other)
        assert work.everything(new.task_id) == before

    def test_racing_identical_submissions_from_threads_make_one_task(
        self, store: Store, clock: FakeClock
    ) -> None:
        def submit(number: int) -> tuple[str, bool]:
            submission = store.submit(new_task(clock, {"a": 1}, idempotency_key=f"k{number % 5}"))
            return submission.task.task_id, submission.created

        with ThreadPoolExecutor(16) as threads:
            submitted = list(threads.map(submit, range(80)))
        assert len({task_id for task_id, _ in submitted}) == 5
        assert sum(created for _, created in submitted) == 5
        assert store.count_states() == {State.QUEUED: 5}

    # -- admission and position

    def test_a_full_queue_takes_no_more_and_another_queue_still_does(self, store: Store, work: Work) -> None:
        for _ in range(3):
            work.submit(queue_cap=3)
        before = store.count_states()
        with pytest.raises(QueueFull) as full:
            work.submit(queue_cap=3)
        assert full.value.details["length"] == 3
        assert full.value.details["retry_after_s"] > 0
        assert store.count_states() == before
        assert work.submit(queue="cpu_heavy", queue_cap=3).created

    def test_a_full_queue_still_gives_back_the_task_of_a_known_key(self, work: Work) -> None:
        first = work.submit({"a": 1}, idempotency_key="k", queue_cap=1)
        assert work.submit({"a": 1}, idempotency_key="k", queue_cap=1).task == first.task

    def test_a_queue_takes_more_when_a_task_has_left_it(self, work: Work) -> None:
        first = work.queued(queue_cap=1)
        work.claim(first)
        assert work.submit(queue_cap=1).created

    def test_the_position_counts_what_goes_first(self, store: Store, work: Work) -> None:
        first = work.submit(priority=0)
        urgent = work.submit(priority=9)
        last = work.submit(priority=0)
        assert [first.position, urgent.position, last.position] == [1, 1, 3]

        def position(task_id: str, limit: int = 500) -> int | None:
            return store.position(store.get(task_id), limit)

        ids = [submission.task.task_id for submission in (urgent, first, last)]
        assert [position(task_id) for task_id in ids] == [1, 2, 3]
        assert position(ids[2], limit=2) == 2
        work.claim(ids[0])
        assert [position(task_id) for task_id in ids] == [None, 1, 2]


def open_call(task_id: str, attended_ms: int = 30_000, given_up: str | None = None) -> OpenCall:
    return OpenCall(task_id, "ann", "relax", "hash", attended_ms, given_up)


class OpenCalls(StoreTests):
    def test_a_call_is_found_by_its_owner_tool_and_inputs_until_it_is_closed(
        self, store: Store, work: Work
    ) -> None:
        first, second = work.queued(), work.queued()
        assert not store.has_calls()
        store.write_calls([open_call(first), open_call(second)])
        assert store.has_calls()
        assert {call.task_id for call in store.calls_like("ann", "relax", "hash")} == {first, second}
        for other in (("bob", "relax", "hash"), ("ann", "melt", "hash"), ("ann", "relax", "other")):
            assert store.calls_like(*other) == []
        store.write_calls([], closed=[first, second])
        assert not store.has_calls()

    def test_a_call_is_attended_until_its_time_is_over_or_it_was_given_up_for_good(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued()

        def is_attended() -> bool:
            (call,) = store.calls_like("ann", "relax", "hash")
            return call.is_attended

        store.write_calls([open_call(task_id)])
        clock.advance(20)
        assert is_attended()
        clock.advance(20)
        assert not is_attended()
        store.write_calls([open_call(task_id)])
        assert is_attended()
        store.write_calls([open_call(task_id, given_up="timed_out")])
        store.write_calls([open_call(task_id)])
        assert not is_attended()

    def test_calls_of_tasks_that_finished_long_ago_or_are_gone_are_forgotten(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        running, lease = work.started(), work.started(worker="w2")
        store.write_calls([open_call(running.task_id), open_call(lease.task_id), open_call("gone")])
        store.report(lease, Succeeded("1"))
        assert store.forget_calls(finished_before=store.now_ms() - 1000) == 1
        clock.advance(10)
        assert store.forget_calls(finished_before=store.now_ms()) == 1
        (left,) = store.calls_like("ann", "relax", "hash")
        assert left.task_id == running.task_id

    def test_a_note_moves_nothing_and_one_of_a_task_that_is_gone_is_passed_over(
        self, store: Store, work: Work
    ) -> None:
        lease = work.started()
        store.write_calls([], notes=[Note(lease.task_id, "joined", {}), Note("gone", "joined", {})])
        store.write_calls([], notes=[Note(lease.task_id, "given_up", {"why": "gone"})])
        joined, given_up = store.events(lease.task_id)[-2:]
        assert (joined.signal, joined.from_state, joined.to_state) == ("joined", "running", "running")
        assert (given_up.signal, given_up.detail) == ("given_up", {"why": "gone"})
