"""Many processes at once."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from ...clock import SystemClock
from ...lifecycle import State
from ...reports import Started, Succeeded
from ...store import Store
from ..clock import FakeClock
from ..processes import Start, values_of
from .base import QUEUE, WithWork, Work, new_task


def open_by_name(module: str, name: str, url: str) -> Store:
    """The store behind `url`, in a process that knows only the names."""
    store: Store = getattr(importlib.import_module(module), name)(url)
    return store


def claim_all(start: Start, module: str, name: str, url: str, worker: str) -> list[str]:
    """Claim until nothing is left; one at a time and then by the handful."""
    store = open_by_name(module, name, url)
    start()
    claimed: list[str] = []
    n = 1
    while leases := store.claim([QUEUE], [f"{worker}-{number}" for number in range(n)], fair=n % 3 == 0):
        claimed += [lease.task_id for lease in leases]
        n = n % 12 + 1
    store.close()
    return claimed


def submit_same(start: Start, module: str, name: str, url: str, keys: int) -> list[str]:
    """Submit what every other process submits, too."""
    store, clock = open_by_name(module, name, url), SystemClock()
    start()
    found = [store.submit(new_task(clock, {"k": k}, idempotency_key=f"k{k}")) for k in range(keys)]
    store.close()
    return [submission.task.task_id for submission in found]


def become_keeper(start: Start, module: str, name: str, url: str, holder: str) -> bool:
    store = open_by_name(module, name, url)
    start()
    kept = store.keep(holder, lease_s=3600)
    store.close()
    return kept


class Racing(WithWork):
    def test_eight_processes_claim_each_of_two_thousand_tasks_exactly_once(
        self, store: Store, store_url: str, clock: FakeClock
    ) -> None:
        news = [new_task(clock, share=f"s{number % 7}") for number in range(2000)]
        with ThreadPoolExecutor(32) as threads:
            list(threads.map(store.submit, news))
        calls = [(*self.opener, store_url, f"process{number}") for number in range(8)]
        claimed = values_of(claim_all, *calls)
        assert sorted(chain(*claimed)) == sorted(new.task_id for new in news)
        assert store.count_states() == {State.SCHEDULED: 2000}
        (depth,) = store.queue_depths()
        assert (depth.queued, depth.leased) == (0, 2000)

    def test_racing_identical_submissions_from_processes_make_one_task(
        self, store: Store, store_url: str
    ) -> None:
        submitted = values_of(submit_same, *[(*self.opener, store_url, 25)] * 4)
        assert submitted[0] == submitted[1] == submitted[2] == submitted[3]
        assert store.count_states() == {State.QUEUED: 25}

    def test_of_racing_processes_one_becomes_the_keeper(self, store: Store, store_url: str) -> None:
        kept = values_of(become_keeper, *[(*self.opener, store_url, f"p{n}") for n in range(4)])
        assert kept.count(True) == 1

    def test_threads_that_write_all_at_once_lose_nothing(self, store: Store, work: Work) -> None:
        def run(number: int) -> str:
            lease = work.claimed({"n": number}, worker=f"w{number}")
            store.report(lease, Started())
            store.report(lease, Succeeded(str(number)))
            return lease.task_id

        with ThreadPoolExecutor(16) as threads:
            done = list(threads.map(run, range(120)))
        assert [store.get(task_id).result for task_id in done] == list(range(120))
        assert all(work.signals(task_id) == ["submit", "claim", "start", "succeed"] for task_id in done)
