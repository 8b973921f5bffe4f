"""Queries: pages and filters, counters, logs, and watches for changes."""

from __future__ import annotations

import random
import select
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from backburner.core.lifecycle import State
from backburner.core.reports import Asked, Failed, Logged, Progressed, Succeeded
from backburner.core.task import LogLine, Progress, TaskHead, new_task_id
from backburner.core.times import SystemClock
from backburner.errors import ArtifactNotFound, TaskNotFound
from backburner.store import open_store
from backburner.store.protocol import ANYTHING, QueueDepth, Store, TaskQuery, Watch
from backburner.testing import FakeClock
from tests.contracts.processes import Start, running
from tests.contracts.store.base import CRASH, QUEUE, TWICE_MORE, StoreTests, Work, new_task


def ids(store: Store, **query: object) -> list[str]:
    return [task.task_id for task in store.page(TaskQuery(**query))]  # type: ignore[arg-type]


class Queries(StoreTests):
    def test_a_page_is_newest_first_and_leaves_out_what_is_large(self, store: Store, work: Work) -> None:
        lease = work.started({"a": 1}, hint_s=3.0)
        store.report(lease, Succeeded('{"b":2}'))
        newer = work.queued()
        page = store.page(TaskQuery())
        assert [task.task_id for task in page] == [newer, lease.task_id]
        whole = store.get(lease.task_id)
        assert whole.result == {"b": 2}
        assert page[1] == replace(whole, inputs=None, result=None)

    def test_pages_follow_each_other_without_gap_or_overlap(self, store: Store, work: Work) -> None:
        submitted = [work.queued() for _ in range(7)]
        found: list[str] = []
        before = None
        while page := store.page(TaskQuery(before_seq=before, limit=3)):
            found += [task.task_id for task in page]
            before = page[-1].seq
            work.queued()  # what comes later is not part of the walk
        assert found == submitted[::-1]

    def test_filters_choose_and_combine(self, store: Store, work: Work, clock: FakeClock) -> None:
        parent = work.queued(tags=("a", "b"))
        child = work.queued(parent_id=parent, tool_name="index")
        bobs = work.queued(owner="bob", tags=("a",))
        failed = work.started(tags=("b",))
        store.report(failed, Failed(CRASH))
        clock.advance(10)
        later = work.queued(tool_name="index")
        everyones = [later, failed.task_id, bobs, child, parent]

        assert ids(store) == everyones
        assert ids(store, owner="bob") == [bobs]
        assert ids(store, owner="ann") == [later, failed.task_id, child, parent]
        assert ids(store, states=frozenset({State.QUEUED})) == [later, bobs, child, parent]
        assert ids(store, states=frozenset({State.FAILED})) == [failed.task_id]
        assert ids(store, owner="ann", states=frozenset({State.FAILED, State.QUEUED})) == [
            later,
            failed.task_id,
            child,
            parent,
        ]
        assert ids(store, owner="bob", states=frozenset({State.FAILED})) == []
        assert ids(store, tool_name="index") == [later, child]
        assert ids(store, owner="ann", tool_name="index") == [later, child]
        assert ids(store, parent_id=parent) == [child]
        assert ids(store, parent_id=parent, owner="bob") == []
        assert ids(store, tags_any=("a", "b")) == [failed.task_id, bobs, parent]
        assert ids(store, tags_any=("a", "b"), limit=2) == [failed.task_id, bobs]
        assert ids(store, owner="ann", tags_any=("a",)) == [parent]
        assert ids(store, owner="ann", tags_any=("b",), states=frozenset({State.FAILED})) == [failed.task_id]
        assert ids(store, submitted_after=clock.now_ms() - 1) == [later]
        assert ids(store, submitted_after=clock.now_ms() - 1, owner="bob") == []
        assert ids(store, submitted_after=clock.now_ms() + 3_600_000) == []

    def test_states_are_counted_for_all_and_for_one_owner(self, store: Store, work: Work) -> None:
        work.queued()
        work.queued(owner="bob")
        store.report(work.started(), Succeeded("1"))
        work.started(owner="bob")
        assert store.count_states() == {State.QUEUED: 2, State.SUCCEEDED: 1, State.RUNNING: 1}
        assert store.count_states("bob") == {State.QUEUED: 1, State.RUNNING: 1}
        assert store.count_states("nobody") == {}

    def test_ids_are_found_by_how_they_begin(self, store: Store, work: Work) -> None:
        mine, theirs = work.queued(), work.queued(owner="bob")
        assert store.ids(mine[:-1]) == [mine]
        assert store.ids(mine) == [mine]
        assert store.ids("tsk_") == sorted([mine, theirs])
        assert store.ids("tsk_", limit=1) == [min(mine, theirs)]
        assert store.ids("tsk_", owner="bob") == [theirs]
        assert store.ids(mine, owner="bob") == []
        assert store.ids("tsk_Z") == []

    def test_the_tasks_of_each_owner_are_counted(self, store: Store, work: Work) -> None:
        assert store.count_owners() == {}
        mine = store.get(work.queued()).owner
        work.queued(owner="bob")
        work.queued(owner="bob")
        assert store.count_owners() == {mine: 1, "bob": 2}

    def test_the_depth_of_each_queue_is_always_what_a_count_gives(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        chance = random.Random(7)
        tasks: list[str] = []

        def submit() -> None:
            tasks.append(work.queued(queue=chance.choice(["q1", "q2"]), priority=chance.choice([0, 5])))

        def claim() -> None:
            for lease in store.claim(["q1", "q2"], ["w1", "w2"]):
                if chance.random() < 0.7:
                    store.report(work.start(lease), Failed(CRASH))

        def steer() -> None:
            task = store.get(chance.choice(tasks))
            if task.finished and chance.random() < 0.5:
                store.retry(task.task_id)
            elif task.finished:
                store.delete(task.task_id)
                tasks.remove(task.task_id)
            else:
                store.cancel(task.task_id)

        submit()
        for _ in range(80):
            chance.choice([submit, submit, claim, steer] if tasks else [submit])()
            counted = Counter(
                (task.queue, task.state is State.QUEUED)
                for task in map(store.get, tasks)
                if not task.finished
            )
            for depth in store.queue_depths():
                assert depth == QueueDepth(
                    depth.queue, counted.pop((depth.queue, True), 0), counted.pop((depth.queue, False), 0)
                )
            assert not counted

    # -- logs

    def test_logs_are_read_by_cursor(self, store: Store, work: Work) -> None:
        lease = work.started()
        lines = tuple(LogLine(n, 1000 + n, "stdout", "info", f"line {n} é") for n in range(1, 8))
        store.report(lease, Logged(lines[:4]))
        store.report(lease, Logged(lines[4:]))
        assert store.logs(lease.task_id) == list(lines)
        assert store.logs(lease.task_id, after=2, limit=3) == list(lines[2:5])
        assert store.logs(lease.task_id, after=7) == []

    # -- the head of a task

    def test_the_head_says_what_the_whole_task_says(self, store: Store, work: Work) -> None:
        lease = work.started({"a": 1}, owner="bob", retry=TWICE_MORE)
        now = store.get(lease.task_id).updated_at
        assert store.head(lease.task_id) == TaskHead(lease.task_id, "bob", State.RUNNING, 1, now)
        store.cancel(lease.task_id)
        assert store.head(lease.task_id).state is State.CANCEL_REQUESTED
        for task_id in (work.queued(), work.asking().task_id, lease.task_id):
            task = store.get(task_id)
            assert store.head(task_id) == TaskHead(
                task_id, task.owner, task.state, task.attempt, task.updated_at
            )

    def test_the_head_of_an_unknown_or_of_anothers_task_is_not_found(self, store: Store, work: Work) -> None:
        task_id = work.queued(owner="ann")
        assert store.head(task_id, "ann") == store.head(task_id)
        with pytest.raises(TaskNotFound):
            store.head(task_id, "bob")
        with pytest.raises(TaskNotFound):
            store.head(new_task_id(work.clock.now_ms()))

    def test_the_heads_of_many_tasks_are_those_of_each_that_is_there(self, store: Store, work: Work) -> None:
        known = [work.queued(), work.asking().task_id]
        unknown = new_task_id(work.clock.now_ms())
        assert store.heads([*known, unknown]) == {task_id: store.head(task_id) for task_id in known}
        assert store.heads([]) == {}

    def test_an_unknown_artifact_is_not_found(self, store: Store) -> None:
        with pytest.raises(ArtifactNotFound):
            store.artifact("art_none")

    # -- the store itself

    def test_the_secret_is_long_and_stays_the_same(self, store: Store, store_url: str) -> None:
        assert len(store.secret()) >= 32
        reopened = open_store(store_url)
        try:
            assert reopened.secret() == store.secret()
        finally:
            reopened.close()

    def test_the_version_is_that_of_the_last_migration(self, store: Store, store_url: str) -> None:
        reopened = open_store(store_url)
        try:
            assert reopened.version() == store.version() >= 1
        finally:
            reopened.close()

    def test_an_empty_store_is_empty(self, store: Store) -> None:
        assert store.page(TaskQuery()) == []
        assert store.queue_depths() == []
        assert store.count_states() == {}
        assert store.workers() == []
        assert store.runtimes("relax") == []
        assert store.ready_in_ms() is None
        assert store.claim([QUEUE], ["w1"]) == []


_BOUND_S = 20.0


def hears(watch: Watch, topic: str) -> bool:
    """Whether the watch hears of `topic` within the bound."""
    deadline = time.monotonic() + _BOUND_S
    while time.monotonic() < deadline:
        if {topic, ANYTHING} & watch.wait(deadline - time.monotonic()):
            return True
    return False


def submit_burst(start: Start, url: str, count: int) -> list[str]:
    """In another process: submit many tasks, one by one."""
    store, clock = open_store(url), SystemClock()
    start()
    found = [store.submit(new_task(clock)).task.task_id for _ in range(count)]
    store.close()
    return found


class Watches(StoreTests):
    @pytest.fixture
    def watch(self, store: Store) -> Iterator[Watch]:
        watch = store.watch()
        yield watch
        watch.close()

    def test_a_new_task_is_heard_of_in_its_queue(self, watch: Watch, work: Work) -> None:
        work.queued()
        assert hears(watch, f"queue:{QUEUE}")

    def test_who_holds_tasks_can_hear_of_cancels_and_answers_alone(self, store: Store, work: Work) -> None:
        watch = store.watch(steering=True)
        try:
            lease = work.started()
            store.cancel(lease.task_id)
            assert hears(watch, f"steer:{lease.task_id}")
        finally:
            watch.close()

    def test_each_kind_of_change_to_a_task_is_heard_of(self, store: Store, watch: Watch, work: Work) -> None:
        task_id = work.queued()

        def heard() -> bool:
            return hears(watch, f"task:{task_id}")

        assert heard()
        lease = work.claim(task_id)
        assert heard()
        work.start(lease)
        assert heard()
        store.report(lease, Progressed(Progress(percent=1)))
        assert heard()
        store.report(lease, Logged((LogLine(1, 1, "stdout", "info", "x"),)))
        assert heard()
        store.report(lease, Asked((work.question(lease, "colour"),)))
        assert heard()
        store.answer(task_id, {"colour": ("accept", 1)})
        assert heard()
        store.cancel(task_id)
        assert heard()
        store.report(lease, Succeeded("1"))
        assert heard()
        store.delete(task_id)
        assert heard()

    def test_a_task_that_can_be_claimed_again_is_heard_of_in_its_queue(
        self, store: Store, watch: Watch, work: Work
    ) -> None:
        lease = work.started()
        assert hears(watch, f"queue:{QUEUE}")
        watch.drain()
        store.lose(workers=["w1"])
        assert hears(watch, f"queue:{QUEUE}")
        store.cancel(lease.task_id)
        watch.drain()
        store.retry(lease.task_id)
        assert hears(watch, f"queue:{QUEUE}")

    def test_the_holder_of_a_task_hears_when_it_is_steered(
        self, store: Store, watch: Watch, work: Work
    ) -> None:
        lease = work.asking("colour")
        assert hears(watch, f"task:{lease.task_id}")
        store.answer(lease.task_id, {"colour": ("accept", 1)})
        assert hears(watch, f"steer:{lease.task_id}")
        watch.drain()
        store.cancel(lease.task_id)
        assert hears(watch, f"steer:{lease.task_id}")

    def test_without_a_change_a_wait_ends_when_its_time_is_over(self, watch: Watch) -> None:
        assert watch.wait(0.01) == set()
        assert watch.drain() == set()

    def test_a_watch_fits_a_selector(self, watch: Watch, work: Work) -> None:
        task_id = work.queued()
        readable, _, _ = select.select([watch.fileno()], [], [], _BOUND_S)
        assert readable
        assert hears(watch, f"task:{task_id}")

    def test_a_refused_report_is_not_heard_of(self, store: Store, watch: Watch, work: Work) -> None:
        late, other = work.started(), work.started()
        store.report(late, Succeeded("1"))
        assert hears(watch, f"task:{work.queued()}")  # and so of all that was before it
        while watch.wait(0.2):
            pass
        store.report_all([(late, [Succeeded("2")]), (other, [Succeeded("3")])])
        assert watch.wait(_BOUND_S) == {f"task:{other.task_id}"}

    def test_every_watch_hears_of_a_change(self, store: Store, work: Work) -> None:
        watches = [store.watch() for _ in range(3)]
        try:
            task_id = work.queued()
            for watch in watches:
                assert hears(watch, f"task:{task_id}")
        finally:
            for watch in watches:
                watch.close()

    def test_a_change_by_another_process_is_heard_of_within_moments(
        self, watch: Watch, store_url: str
    ) -> None:
        with running(submit_burst, (store_url, 1)) as (process,):
            (task_id,) = process.value()
            assert hears(watch, f"task:{task_id}")

    def test_a_burst_from_another_process_is_heard_of_to_its_end(
        self, store: Store, clock: FakeClock, watch: Watch, store_url: str
    ) -> None:
        # Nobody listens while the burst goes on: a watch may lose count, but it must say so.
        stuck = store.watch()
        try:
            with running(submit_burst, (store_url, 2000)) as (process,):
                submitted = process.value()
            heard = set[str]()
            while not ({ANYTHING} & heard or {f"task:{task_id}" for task_id in submitted} <= heard):
                more = watch.wait(_BOUND_S)
                assert more, "the watch fell silent before it had told everything"
                heard |= more
            last = store.submit(new_task(clock)).task.task_id
            assert hears(watch, f"task:{last}")
        finally:
            stuck.close()

    def test_a_listener_that_never_reads_does_not_deafen_another(self, store: Store, work: Work) -> None:
        stuck = [store.watch() for _ in range(40)]
        listening = store.watch()
        try:
            for _ in range(30):
                task_id = work.queued(meta={"long": "x" * 100})
                assert hears(listening, f"task:{task_id}")
        finally:
            for watch in (*stuck, listening):
                watch.close()
