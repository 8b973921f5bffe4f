"""Waking up: a watch hears of every change, from any process, and may be waited for."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator

import pytest

from ...clock import SystemClock
from ...reports import Asked, Logged, Progressed, Succeeded
from ...store import Store
from ...task import LogLine, Progress
from ...watch import ANYTHING, Watch
from ..clock import FakeClock
from ..processes import Start, running
from .base import QUEUE, StoreTests, WithWork, Work, new_task
from .racing import open_by_name

_BOUND_S = 20.0


def hears(watch: Watch, topic: str) -> bool:
    """Whether the watch hears of `topic` within the bound."""
    deadline = time.monotonic() + _BOUND_S
    while time.monotonic() < deadline:
        if {topic, ANYTHING} & watch.wait(deadline - time.monotonic()):
            return True
    return False


def submit_burst(start: Start, module: str, name: str, url: str, count: int) -> list[str]:
    """In another process: submit many tasks, one by one."""
    store, clock = open_by_name(module, name, url), SystemClock()
    start()
    found = [store.submit(new_task(clock)).task.task_id for _ in range(count)]
    store.close()
    return found


class Watching(WithWork, StoreTests):
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
        with running(submit_burst, (*self.opener, store_url, 1)) as (process,):
            (task_id,) = process.value()
            assert hears(watch, f"task:{task_id}")

    def test_a_burst_from_another_process_is_heard_of_to_its_end(
        self, store: Store, clock: FakeClock, watch: Watch, store_url: str
    ) -> None:
        # Nobody listens while the burst goes on: a watch may lose count, but it must say so.
        stuck = store.watch()
        try:
            with running(submit_burst, (*self.opener, store_url, 2000)) as (process,):
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
