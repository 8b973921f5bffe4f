"""What has come to an end, one after the other, and how long the store takes."""

from __future__ import annotations

from ...endings import Ending, Mark
from ...lifecycle import State
from ...open_call import Note
from ...reports import Failed, HandedBack, Succeeded, TimedOut
from ...store import Store
from ...task import TaskError
from ..clock import FakeClock
from .base import LOST, WithWork, Work

BEGINNING = Mark(0)


def ended(store: Store, after: Mark = BEGINNING, limit: int = 100) -> list[Ending]:
    return store.endings(after, store.now_ms(), limit)


class Endings(WithWork):
    def test_the_end_of_an_attempt_says_how_long_it_waited_and_ran_and_what_came_of_it(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued()
        store.write_calls([], notes=[Note(task_id, "joined", {})])  # it moves nothing
        clock.advance(3)
        lease = work.start(work.claim(task_id))
        clock.advance(2)
        store.report(lease, Succeeded("1"))
        (ending,) = ended(store)
        assert (ending.outcome, ending.state) == ("succeeded", State.SUCCEEDED)
        assert (ending.tool_name, ending.queue) == (lease.task.tool_name, lease.task.queue)
        assert (ending.mark.at, ending.mark.task_id) == (store.now_ms(), task_id)
        assert (ending.waited_s, ending.ran_s) == (3, 2)

    def test_what_is_tried_again_ended_once_for_each_attempt(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued()
        store.report(work.start(work.claim(task_id)), Failed(LOST))
        while (again := store.claim_task(task_id, "w1")) is None:
            clock.advance(1)
        store.report(again, HandedBack("the host goes down"))
        clock.advance(4)
        third = work.start(work.claim(task_id))
        store.report(third, TimedOut(TaskError("timed_out", "too long")))
        store.retry(task_id)
        clock.advance(5)
        store.report(work.start(work.claim(task_id)), Succeeded("1"))
        assert [(one.outcome, one.state) for one in ended(store)] == [
            ("lost", State.QUEUED),
            ("handed_back", State.QUEUED),
            ("timed_out", State.TIMED_OUT),
            ("succeeded", State.SUCCEEDED),
        ]
        assert [one.waited_s for one in ended(store)] == [0, None, 4, 5]

    def test_a_task_that_nobody_began_with_ends_without_an_attempt(self, store: Store, work: Work) -> None:
        store.cancel(work.queued())
        (ending,) = ended(store)
        assert (ending.outcome, ending.state) == (None, State.CANCELLED)
        assert (ending.waited_s, ending.ran_s) == (None, None)

    def test_endings_are_read_on_from_a_mark_each_once_and_none_that_is_too_young(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        for _ in range(5):
            store.report(work.started(), Succeeded("1"))
        everything = ended(store)
        assert len(everything) == 5
        assert [one.mark for one in everything] == sorted(one.mark for one in everything)
        read, mark = [], BEGINNING
        while page := ended(store, mark, limit=2):
            read += page
            mark = page[-1].mark
        assert read == everything
        until = store.now_ms()
        clock.advance(1)
        store.report(work.started(), Succeeded("1"))
        assert store.endings(mark, until) == []
        assert len(ended(store, mark)) == 1

    def test_a_finished_task_that_expires_or_is_noted_upon_ends_no_second_time(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        lease = work.started()
        store.report(lease, Succeeded("1"))
        store.write_calls([], notes=[Note(lease.task_id, "told", {})])
        clock.advance(365 * 86400)
        store.expire()
        assert [one.state for one in ended(store)] == [State.SUCCEEDED]

    def test_who_observes_a_store_is_told_how_long_each_read_and_write_takes(
        self, store: Store, work: Work
    ) -> None:
        seen: list[tuple[str, float]] = []
        store.observe(lambda kind, seconds: seen.append((kind, seconds)))
        task_id = work.queued()
        store.get(task_id)
        assert {kind for kind, _ in seen} == {"read", "write"}
        assert all(0 <= seconds < 60 for _, seconds in seen)
