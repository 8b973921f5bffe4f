"""Monitoring: the event feed, completions, paused queues, client timeouts."""

from __future__ import annotations

import contextlib
import threading

import pytest

from backburner.core.lifecycle import State
from backburner.core.monitoring import (
    KEPT_OF_A_CLIENT,
    KEPT_OF_ALL,
    LATENCY_BOUNDS_MS,
    ClientTimeout,
    Completion,
    FeedCursor,
    PausedQueue,
)
from backburner.core.reports import Failed, HandedBack, Succeeded, TimedOut
from backburner.core.task import TaskError
from backburner.errors import InvalidCursor
from backburner.store.protocol import ClaimRequest, Note, Store, TaskQuery
from backburner.testing import FakeClock
from tests.contracts.store.base import CRASH, LOST, QUEUE, StoreTests, Work, new_task
from tests.contracts.store.queries import hears


def ids(store: Store, **query: object) -> list[str]:
    return [task.task_id for task in store.page(TaskQuery(**query))]  # type: ignore[arg-type]


def signals(store: Store, after: str) -> list[str]:
    return [one.event.signal for one in store.happenings(after).events]


class Monitoring(StoreTests):
    # -- the order of events

    def test_events_of_all_tasks_come_in_the_order_of_their_commits(self, store: Store, work: Work) -> None:
        start = store.happenings().place
        first, second = work.queued(), work.queued(owner="bob", tool_name="index", queue="q2")
        store.report(work.start(work.claim(first)), Succeeded("1"))
        store.cancel(second)
        found = store.happenings(start)
        assert [(one.event.task_id, one.event.signal) for one in found.events] == [
            (first, "submit"),
            (second, "submit"),
            (first, "claim"),
            (first, "start"),
            (first, "succeed"),
            (second, "cancel"),
        ]
        bobs = found.events[-1]
        assert (bobs.owner, bobs.tool_name, bobs.queue) == ("bob", "index", "q2")
        assert bobs.event == store.events(second)[-1]
        assert not found.missed
        assert not found.more

    def test_who_goes_on_from_a_place_sees_each_event_once(self, store: Store, work: Work) -> None:
        place = store.happenings().place
        for _ in range(5):
            store.cancel(work.queued())
        seen: list[tuple[str, int]] = []
        page = store.happenings(place, limit=3)
        while page.events:
            seen += [(one.event.task_id, one.event.seq) for one in page.events]
            last, place = page.events[-1].place, page.place
            page = store.happenings(place, limit=3)
        assert len(seen) == len(set(seen)) == 10
        again = store.happenings(place)
        assert (again.events, again.place) == ([], place)
        assert store.happenings(last).events == []
        later = work.queued()
        assert [one.event.task_id for one in store.happenings(place).events] == [later]

    def test_writers_side_by_side_leave_no_gap_for_who_reads_meanwhile(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        place, seen = store.happenings().place, list[tuple[str, int]]()
        writers = [threading.Thread(target=lambda: [work.queued() for _ in range(25)]) for _ in range(4)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            page = store.happenings(place, limit=7)
            seen += [(one.event.task_id, one.event.seq) for one in page.events]
            place = page.place
        for writer in writers:
            writer.join()
        while events := (page := store.happenings(place)).events:
            seen += [(one.event.task_id, one.event.seq) for one in events]
            place = page.place
        assert len(seen) == len(set(seen)) == 100

    def test_what_was_deleted_is_passed_over(self, store: Store, work: Work) -> None:
        place = store.happenings().place
        gone, stays = work.queued(), work.queued()
        store.cancel(gone)
        store.delete(gone)
        found = store.happenings(place)
        assert {one.event.task_id for one in found.events} == {stays}
        assert store.happenings(found.place).events == []

    def test_who_comes_too_late_is_told_so(self, store: Store, work: Work) -> None:
        place = store.happenings().place
        for _ in range(10):
            work.queued()
        assert not store.happenings(place).missed
        store.forget_order(keep=4)
        late = store.happenings(place)
        assert late.missed
        assert len(late.events) == 4
        assert not store.happenings(late.events[0].place).missed
        assert len(ids(store)) == 10

    @pytest.mark.parametrize("place", ["", "1", "x-1", "1-", "-1-2", "1-2-3", "9" * 40 + "-1"])
    def test_what_is_no_place_is_refused(self, store: Store, place: str) -> None:
        with pytest.raises(InvalidCursor):
            store.happenings(place)

    # -- what ended when

    def test_what_ended_is_counted_by_time_state_wait_and_run(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        since = clock.now_ms()
        task_id = work.queued()
        clock.advance(2)
        lease = work.start(work.claim(task_id))
        clock.advance(20)
        store.report(lease, Succeeded("1"))
        clock.advance(60)
        store.cancel(work.queued(owner="bob", tool_name="index"))
        work.queued()  # has not ended
        until = clock.now_ms() + 1
        first, second = store.ended(since, until, 60_000)
        assert (first.stretch, first.state, first.tasks) == (0, State.SUCCEEDED, 1)
        assert LATENCY_BOUNDS_MS[first.wait or 0] == 2_500
        assert LATENCY_BOUNDS_MS[first.run or 0] == 30_000
        assert (second.stretch, second.state, second.run, second.tasks) == (1, State.CANCELLED, None, 1)
        assert store.ended(since, until, 60_000, owner="bob") == [second]
        assert store.ended(since, until, 60_000, tool_name="relax") == [first]
        assert store.ended(since, until, 60_000, queue="none") == []
        assert store.ended(since, clock.now_ms() - 1, 60_000) == [first]

    def test_what_ran_for_longer_than_any_bound_is_of_the_longest_kind(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        since, lease = clock.now_ms(), work.started()
        clock.advance(10 * 86_400)
        store.report(lease, Failed(CRASH))
        (found,) = store.ended(since, clock.now_ms() + 1, 86_400_000)
        assert found.run == len(LATENCY_BOUNDS_MS)

    # -- filters of lists

    def test_a_list_is_filtered_by_queue_id_text_and_time(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        old = work.queued(queue="q1", tags=("project:Screening",))
        clock.advance(3_600)
        failed = work.started(queue="q2", external_id="order_7")
        store.report(failed, Failed(CRASH))
        new = work.queued(owner="bob", queue="q1", tool_name="index_all")
        assert ids(store, queue="q1") == [new, old]
        assert ids(store, queue="q1", states=frozenset({State.QUEUED}), owner="bob") == [new]
        assert ids(store, id_beginning=new[:20]) == [new]
        assert ids(store, id_beginning=new) == [new]
        assert ids(store, id_beginning=new, owner="ann") == []
        assert ids(store, id_beginning="tsk_Z") == []
        assert ids(store, id_beginning=old[:5]) == [new, failed.task_id, old]
        assert ids(store, text="screen") == [old]
        assert ids(store, text="IT BROKE") == [failed.task_id]
        assert ids(store, text="order_7", owner="ann") == [failed.task_id]
        assert ids(store, text="order.7") == ids(store, text="%") == ids(store, text="x.a") == []
        assert ids(store, text="x_a", queue="q2") == []
        assert ids(store, text="index_") == [new]
        assert ids(store, submitted_before=clock.now_ms() - 1) == [old]
        assert ids(store, submitted_before=clock.now_ms() + 1) == [new, failed.task_id, old]
        assert ids(store, submitted_before=clock.now_ms() - 4_000_000) == []

    def test_a_list_may_begin_with_the_oldest(self, store: Store, work: Work) -> None:
        old = work.queued(tags=("a", "b"))
        failed = work.started(tags=("b",))
        store.report(failed, Failed(CRASH))
        new = work.queued(owner="bob", tags=("a",))
        whole = [old, failed.task_id, new]
        assert ids(store, after_seq=0) == whole
        first = store.page(TaskQuery(after_seq=0, limit=2))
        assert [task.task_id for task in first] == whole[:2]
        assert ids(store, after_seq=first[-1].seq) == whole[2:]
        assert ids(store, after_seq=0, tags_any=("a", "b")) == whole
        assert ids(store, after_seq=0, tags_any=("a", "b"), states=frozenset({State.QUEUED})) == [old, new]
        assert ids(store, after_seq=0, owner="bob") == [new]
        assert ids(store, after_seq=0, owner="ann", states=frozenset({State.FAILED})) == [failed.task_id]
        assert ids(store, after_seq=0, text="broke") == [failed.task_id]

    # -- paused queues

    def test_no_task_of_a_paused_queue_begins_until_it_is_resumed(self, store: Store, work: Work) -> None:
        running, task_id = work.started(), work.queued()
        store.pause_queue(QUEUE, "ann")
        store.pause_queue(QUEUE, "bob")  # it is already
        assert store.paused_queues() == [PausedQueue(QUEUE, work.clock.now_ms(), "ann")]
        for fair in (False, True):
            assert store.claim([QUEUE], ["w1"], fair=fair) == []
        assert store.begin_hand_out("celery", [QUEUE]) == []
        turn = store.commit_batch([], [(new_task(work.clock), None)], [ClaimRequest(QUEUE, ["w1"])])
        assert turn.leases == [[]]
        store.report(running, Succeeded("1"))
        paused = store.get(task_id)
        assert paused.waits_for is not None
        assert "paused" in paused.waits_for
        with contextlib.closing(store.watch()) as watch:
            store.resume_queue(QUEUE)
            assert hears(watch, f"queue:{QUEUE}")
        assert store.paused_queues() == []
        assert store.get(task_id).waits_for is None
        assert [lease.task_id for lease in store.claim([QUEUE], ["w1"])] == [task_id]

    def test_other_queues_go_on_while_one_is_paused(self, store: Store, work: Work) -> None:
        store.pause_queue("q1", "ann")
        work.queued(queue="q1")
        other = work.queued(queue="q2")
        assert [lease.task_id for lease in store.claim(["q1", "q2"], ["w1", "w2"])] == [other]
        wishes = [ClaimRequest("q1", ["w3"]), ClaimRequest("q2", ["w4"])]
        turn = store.commit_batch([], [(new_task(work.clock, queue="q2"), None)], wishes)
        assert [len(leases) for leases in turn.leases] == [0, 1]


BEGINNING = FeedCursor(0)


def ended(store: Store, after: FeedCursor = BEGINNING, limit: int = 100) -> list[Completion]:
    return store.endings(after, store.now_ms(), limit)


class Completions(StoreTests):
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


def time_out(name: str = "host", seen_at: int = 1, waited_ms: int = 5000) -> ClientTimeout:
    return ClientTimeout(name, "1.0", "stdio", seen_at, waited_ms, waited_ms)


class ClientTimeouts(StoreTests):
    def test_the_last_time_outs_of_each_client_are_kept(self, store: Store) -> None:
        assert store.time_outs() == []
        other = ClientTimeout("host", "1.0", "http", 1, 60_000, 400)
        store.keep_time_out(other)
        seen = [time_out(seen_at=at) for at in range(1, KEPT_OF_A_CLIENT + 3)]
        for one in seen:
            store.keep_time_out(one)
        store.keep_time_out(seen[-1])
        assert store.time_outs() == [other, *seen[2:]]

    def test_however_many_names_clients_give_the_oldest_make_room(self, store: Store) -> None:
        for at in range(1, KEPT_OF_ALL + 3):
            store.keep_time_out(time_out(f"host {at}", at))
        assert sorted(one.seen_at for one in store.time_outs()) == list(range(3, KEPT_OF_ALL + 3))

    def test_time_outs_are_forgotten_as_they_are_disproved_and_when_one_asks(self, store: Store) -> None:
        for at, waited_ms in enumerate((1000, 5000, 9000)):
            store.keep_time_out(time_out(seen_at=at, waited_ms=waited_ms))
        other = time_out("other")
        store.keep_time_out(other)
        assert store.disprove_time_outs("host", "1.0", "http", 9000) == 0
        assert store.disprove_time_outs("host", "1.0", "stdio", 5001) == 2
        assert store.time_outs() == [time_out(seen_at=2, waited_ms=9000), other]
        assert store.forget_time_outs("nobody") == 0
        assert store.forget_time_outs("host") == 1
        assert store.time_outs() == [other]
        assert store.forget_time_outs() == 1
        assert store.time_outs() == []
