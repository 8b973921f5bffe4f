"""Open calls, and notes in audit trails."""

from __future__ import annotations

from ...open_call import Note, OpenCall
from ...reports import Succeeded
from ...store import Store
from ..clock import FakeClock
from .base import WithWork, Work


def open_call(task_id: str, attended_ms: int = 30_000, given_up: str | None = None) -> OpenCall:
    return OpenCall(task_id, "ann", "relax", "hash", attended_ms, given_up)


class Calling(WithWork):
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
