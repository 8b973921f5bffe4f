"""Claims: order, limits on running tasks, workers, and races between processes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from msgspec.structs import replace

from backburner.core.lifecycle import State
from backburner.core.limits import Limits, ToolLimits
from backburner.core.reports import (
    Cancelled,
    Change,
    Failed,
    HandedBack,
    Outcome,
    Started,
    Succeeded,
    TimedOut,
)
from backburner.core.retry import NO_RETRY
from backburner.core.task import Worker
from backburner.core.times import SystemClock
from backburner.store import open_store
from backburner.store.protocol import ClaimRequest, Lease, LeaseView, Store
from backburner.testing import FakeClock
from tests.contracts.processes import Start, values_of
from tests.contracts.store.base import CRASH, OVER, QUEUE, STOPPED, StoreTests, Work, new_task


def workers(count: int) -> list[str]:
    return [f"w{number}" for number in range(1, count + 1)]


def task_ids(leases: Sequence[Lease]) -> list[str]:
    return [lease.task_id for lease in leases]


class Claims(StoreTests):
    def test_a_claim_makes_a_lease_with_all_that_a_worker_needs(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        task_id = work.queued({"a": 1})
        clock.advance(2)
        (lease,) = store.claim([QUEUE], ["w1"])
        assert (lease.task_id, lease.attempt, lease.worker_id) == (task_id, 1, "w1")
        assert lease.task == store.get(task_id)
        assert lease.task.state is State.SCHEDULED
        assert lease.task.inputs == {"a": 1}
        assert (lease.checkpoint, lease.last_log_seq) == (None, 0)
        (attempt,) = store.attempts(task_id)
        assert (attempt.attempt, attempt.worker_id, attempt.claimed_at) == (1, "w1", clock.now_ms())
        assert attempt.outcome is None
        assert work.signals(task_id) == ["submit", "claim"]

    def test_tasks_are_handed_out_by_priority_and_then_first_come(self, store: Store, work: Work) -> None:
        low = work.queued(priority=-1)
        first, second = work.queued(), work.queued()
        urgent = work.queued(priority=10)
        assert task_ids(store.claim([QUEUE], workers(3))) == [urgent, first, second]
        assert task_ids(store.claim([QUEUE], workers(3))) == [low]
        assert store.claim([QUEUE], workers(3)) == []

    def test_each_worker_gets_one_task(self, store: Store, work: Work) -> None:
        for _ in range(3):
            work.queued()
        leases = store.claim([QUEUE], ["a", "b"])
        assert [lease.worker_id for lease in leases] == ["a", "b"]

    def test_only_the_queues_named_are_claimed_from(self, store: Store, work: Work) -> None:
        work.queued(queue="other")
        assert store.claim([QUEUE], ["w1"]) == []
        assert store.claim([], ["w1"]) == []

    def test_the_best_of_many_queues_goes_first(self, store: Store, work: Work) -> None:
        a1 = work.queued(queue="a")
        b1 = work.queued(queue="b", priority=5)
        a2 = work.queued(queue="a", priority=5)
        c1 = work.queued(queue="c")
        assert task_ids(store.claim(["a", "b", "c"], workers(3))) == [b1, a2, a1]
        assert task_ids(store.claim(["a", "b", "c"], workers(3))) == [c1]

    def test_one_task_can_be_claimed_by_its_id_once(self, store: Store, work: Work) -> None:
        work.queued()
        task_id = work.queued()
        lease = store.claim_task(task_id, "w1")
        assert lease is not None
        assert lease.task_id == task_id
        assert store.claim_task(task_id, "w2") is None
        assert store.claim_task("tsk_unknown", "w2") is None

    # -- fair share

    def test_fair_share_gives_each_owner_a_turn(self, store: Store, work: Work) -> None:
        ann = [work.queued(owner="ann", share="ann") for _ in range(4)]
        bob = [work.queued(owner="bob", share="bob") for _ in range(2)]
        assert task_ids(store.claim([QUEUE], workers(4), fair=True)) == [ann[0], bob[0], ann[1], bob[1]]

    def test_fair_share_counts_what_is_under_way(self, store: Store, work: Work) -> None:
        ann = [work.queued(share="project:a") for _ in range(4)]
        store.claim([QUEUE], workers(2), fair=True)
        bob = [work.queued(share="project:b") for _ in range(3)]
        assert task_ids(store.claim([QUEUE], workers(3), fair=True)) == [bob[0], bob[1], ann[2]]

    def test_a_share_that_has_finished_its_tasks_gets_its_turn_again(self, store: Store, work: Work) -> None:
        a = [work.queued(share="a") for _ in range(2)]
        (lease,) = store.claim([QUEUE], ["w1"], fair=True)
        work.queued(share="b")
        store.report(work.start(lease), Succeeded("1"))
        assert task_ids(store.claim([QUEUE], ["w1"], fair=True)) == [a[1]]

    def test_priority_comes_before_fairness_and_lower_ones_follow(self, store: Store, work: Work) -> None:
        low = work.queued(share="b")
        urgent = [work.queued(share="a", priority=5) for _ in range(2)]
        assert task_ids(store.claim([QUEUE], workers(3), fair=True)) == [*urgent, low]

    def test_tasks_without_a_share_are_a_share_of_their_own(self, store: Store, work: Work) -> None:
        plain = [work.queued() for _ in range(2)]
        shared = work.queued(share="a")
        assert task_ids(store.claim([QUEUE], workers(3), fair=True)) == [plain[0], shared, plain[1]]

    # -- heartbeats

    def test_a_heartbeat_keeps_a_lease_and_tells_what_its_holder_must_know(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        running, cancelled, ended = work.started(), work.started(), work.started()
        store.cancel(cancelled.task_id)
        store.report(ended, Succeeded("1"))
        clock.advance(5)
        assert store.heartbeat([running, cancelled, ended], []) == [
            LeaseView(True, State.RUNNING),
            LeaseView(True, State.CANCEL_REQUESTED),
            LeaseView(False, State.SUCCEEDED),
        ]
        assert store.get(running.task_id).heartbeat_at == clock.now_ms()
        assert store.get(ended.task_id).heartbeat_at == clock.now_ms() - 5000

    def test_a_heartbeat_of_an_earlier_attempt_holds_nothing(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        old = work.claimed()
        store.report(old, HandedBack("leaving"))
        new = work.claim(old.task_id, "w2")
        clock.advance(5)
        assert store.heartbeat([old], []) == [LeaseView(False, State.SCHEDULED)]
        assert store.get(new.task_id).heartbeat_at == clock.now_ms() - 5000

    def test_a_heartbeat_for_a_deleted_task_holds_nothing(self, store: Store, work: Work) -> None:
        lease = work.started()
        store.report(lease, Succeeded("1"))
        store.delete(lease.task_id)
        (view,) = store.heartbeat([lease], [])
        assert not view.held

    def test_workers_are_seen_as_last_reported_until_their_supervisor_leaves(
        self, store: Store, clock: FakeClock
    ) -> None:
        def worker(name: str, supervisor: str) -> Worker:
            return Worker(name, supervisor, "host", QUEUE, "idle", clock.now_ms(), clock.now_ms(), pid=3)

        one, two = worker("w1", "s1"), worker("w2", "s2")
        store.heartbeat([], [one, two])
        clock.advance(3)
        busy = replace(one, state="busy", current_task_id="tsk_x", pid=4)
        store.heartbeat([], [busy])
        assert store.workers() == [replace(busy, last_heartbeat=clock.now_ms()), two]
        store.remove_workers("s1")
        assert store.workers() == [two]


ONE, TWO = ToolLimits(max_running=1), ToolLimits(max_running=2)
ONE_PER_KEY = ToolLimits(max_running_per_key=1)


def keyed(key: str, **given: Any) -> dict[str, Any]:
    return {"limits": ONE_PER_KEY, "concurrency_key": key, **given}


def run_under_limit(start: Start, url: str, worker: str) -> list[int]:
    """Claim and end tasks until all are over; how many ran at the moment of each claim."""
    store = open_store(url)
    start()
    seen: list[int] = []
    while store.count_states().get(State.SUCCEEDED, 0) < _RACED:
        for lease in store.claim([QUEUE], [f"{worker}-1", f"{worker}-2"]):
            states = store.count_states()
            seen.append(sum(states.get(state, 0) for state in (State.SCHEDULED, State.RUNNING)))
            store.report(lease, Started(), Succeeded("1"))
    store.close()
    return seen


_RACED = 60


class RunLimits(StoreTests):
    def claim(self, store: Store, n: int = 4, **options: Any) -> list[str]:
        return task_ids(store.claim([QUEUE], workers(n), **options))

    def end(self, store: Store, task_id: str, outcome: Outcome | None = None) -> None:
        task = store.get(task_id)
        lease = Lease(task, str(task.worker_id))
        store.report(lease, Started(), outcome or Succeeded("1"))

    def test_at_most_so_many_tasks_of_a_tool_run(self, store: Store, work: Work) -> None:
        first, second, third = (work.queued(limits=TWO) for _ in range(3))
        other = work.queued(tool_name="draw")
        assert self.claim(store) == [first, second, other]
        assert self.claim(store) == []
        self.end(store, second)
        assert self.claim(store) == [third]

    def test_a_held_task_is_queued_for_everybody_and_says_why(self, store: Store, work: Work) -> None:
        first, held = work.queued(limits=ONE), work.queued(limits=ONE)
        assert self.claim(store) == [first]
        reason = "At most 1 task of relax runs at a time."
        task = store.get(held)
        assert (task.state, task.waits_for, task.ready_at) == (State.QUEUED, reason, None)
        assert store.position(task) is None
        (depth,) = store.queue_depths()
        assert (depth.queued, depth.leased) == (1, 1)
        event = store.events(held)[-1]
        assert (event.signal, event.from_state, event.to_state) == ("held", State.QUEUED, State.QUEUED)
        assert event.detail == {"limit": "tool:relax", "reason": reason}
        self.end(store, first)
        assert store.get(held).waits_for is None
        assert self.claim(store) == [held]
        assert work.signals(held) == ["submit", "held", "claim"]

    def test_the_oldest_of_the_highest_priority_goes_on_first(self, store: Store, work: Work) -> None:
        running = work.queued(limits=ONE)
        self.claim(store)
        low, first, second = (work.queued(limits=ONE, priority=number) for number in (-1, 0, 0))
        urgent = work.queued(limits=ONE, priority=5)
        order = []
        for _ in range(4):
            self.claim(store)
            self.end(store, running)
            (running,) = self.claim(store)
            order.append(running)
        assert order == [urgent, first, second, low]

    def test_an_operator_limits_owners_and_tools_whatever_was_said_at_the_submit(
        self, store: Store, work: Work
    ) -> None:
        limits = Limits(max_running_per_owner=2, tools={"dr*": ToolLimits(max_running=1)})
        ann = [work.queued() for _ in range(3)]
        bob = [work.queued(owner="bob", tool_name="draw") for _ in range(2)]
        assert self.claim(store, 5, limits=limits) == [ann[0], ann[1], bob[0]]
        assert store.get(ann[2]).waits_for == "At most 2 tasks of one owner run at a time."
        assert store.get(bob[1]).waits_for == "At most 1 task of draw runs at a time."
        self.end(store, ann[1])
        assert self.claim(store, 5, limits=limits) == [ann[2]]

    def test_the_least_of_the_tools_and_the_operators_limits_counts(self, store: Store, work: Work) -> None:
        given = [work.queued(limits=TWO) for _ in range(3)]
        wide, narrow = Limits(tools={"relax": ToolLimits(3)}), Limits(tools={"relax": ToolLimits(1)})
        assert self.claim(store, limits=narrow) == given[:1]
        store.look_at_limits(wide)
        assert self.claim(store, limits=wide) == given[1:2]

    def test_tasks_with_one_key_run_one_after_the_other_and_others_beside_them(
        self, store: Store, work: Work
    ) -> None:
        a1, a2, b1 = (work.queued(**keyed(key)) for key in "aab")
        elsewhere = work.queued(**keyed("a", tool_name="draw"))
        free = work.queued(**keyed(""))
        assert self.claim(store, 6) == [a1, b1, elsewhere, free]
        assert store.get(a2).waits_for == "At most 1 task of relax with the key 'a' runs at a time."
        self.end(store, b1)
        assert self.claim(store) == []
        self.end(store, a1)
        assert self.claim(store) == [a2]

    def test_a_task_under_several_limits_starts_when_all_have_room_and_takes_no_place_before(
        self, store: Store, work: Work
    ) -> None:
        limits = Limits(max_running_per_owner=1)
        of_bob = work.queued(**keyed("a", owner="bob"))
        of_ann = work.queued()
        assert self.claim(store, limits=limits) == [of_bob, of_ann]
        both = work.queued(**keyed("a"))
        behind = work.queued()
        assert self.claim(store, limits=limits) == []
        self.end(store, of_ann)
        assert self.claim(store, limits=limits) == []  # the first in line turns out to want the key, too
        assert self.claim(store, limits=limits) == [behind]
        self.end(store, of_bob)
        assert self.claim(store, limits=limits) == []
        self.end(store, behind)
        assert self.claim(store, limits=limits) == [both]
        assert work.signals(both) == ["submit", "held", "held", "held", "claim"]

    def test_whatever_ends_an_attempt_makes_room_and_a_question_does_not(
        self, store: Store, work: Work
    ) -> None:
        outcomes: list[Outcome] = [
            Succeeded("1"),
            Failed(CRASH),
            TimedOut(OVER),
            HandedBack("leaving"),
            Cancelled(STOPPED),
        ]
        for number, outcome in enumerate(outcomes):
            key = f"k{number}"
            lease = work.asking(retry=NO_RETRY, **keyed(key))
            held = work.queued(priority=1, **keyed(key))
            assert self.claim(store) == []
            store.report(lease, outcome)
            assert task_ids(store.claim([QUEUE], ["w1"])) == [held]
        lost, held = work.started(worker="gone", **keyed("lost")), work.queued(priority=1, **keyed("lost"))
        assert self.claim(store, 1) == []
        assert store.lose(workers=["gone"]) == [lost.task_id]
        assert self.claim(store, 1) == [held]

    def test_a_place_that_is_left_in_line_goes_to_the_next(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        running = work.queued(limits=ONE)
        self.claim(store)
        cancelled, expiring, last = (
            work.queued(limits=ONE),
            work.queued(limits=ONE, ttl_s=1),
            work.queued(limits=ONE),
        )
        assert self.claim(store) == []
        self.end(store, running)  # the first is in line now
        store.cancel(cancelled)
        clock.advance(2)
        assert store.expire() == [expiring]
        assert self.claim(store) == [last]

    def test_so_many_start_in_a_minute_and_the_rest_when_it_is_over(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        limits = ToolLimits(max_starts_per_minute=2)
        given = [work.queued(limits=limits) for _ in range(5)]
        assert self.claim(store) == given[:2]
        for task_id in given[:2]:
            self.end(store, task_id)
        assert self.claim(store) == []
        task = store.get(given[2])
        assert task.waits_for == "At most 2 tasks of relax start in a minute."
        assert task.ready_at == clock.now_ms() + 60_000
        assert store.ready_in_ms() == 60_000
        clock.advance(59)
        assert self.claim(store) == []
        clock.advance(1)
        started = self.claim(store)
        started += self.claim(store)
        assert started == given[2:4]
        assert store.get(given[4]).ready_at == clock.now_ms() + 60_000

    def test_an_owner_starts_so_many_in_a_minute_and_a_turn_says_when_the_next_may(
        self, store: Store, work: Work, clock: FakeClock
    ) -> None:
        limits = Limits(max_starts_per_minute_per_owner=1)
        new = [(new_task(clock, owner=owner), None) for owner in ("ann", "ann", "bob")]
        turn = store.commit_batch((), new, [ClaimRequest(QUEUE, workers(4))], limits=limits)
        assert task_ids(turn.leases[0]) == [new[0][0].task_id, new[2][0].task_id]
        assert turn.ready_in_ms == 60_000
        store.cancel(new[1][0].task_id)
        assert store.ready_in_ms() is None

    def test_new_tasks_are_leased_in_the_turn_that_brings_them_as_far_as_limits_let_them(
        self, store: Store, clock: FakeClock
    ) -> None:
        new = [new_task(clock, limits=ONE), new_task(clock, limits=ONE), new_task(clock, tool_name="draw")]
        turn = store.commit_batch((), [(one, None) for one in new], [ClaimRequest(QUEUE, workers(3))])
        assert task_ids(turn.leases[0]) == [new[0].task_id, new[2].task_id]
        changes: list[Change] = [Started(), Succeeded("1")]
        again = store.commit_batch([(turn.leases[0][0], changes)], (), [ClaimRequest(QUEUE, workers(3))])
        assert task_ids(again.leases[0]) == [new[1].task_id]

    def test_a_limit_that_is_widened_or_gone_lets_go_what_it_held(self, store: Store, work: Work) -> None:
        given = [work.queued() for _ in range(5)]
        assert self.claim(store, limits=Limits(max_running_per_owner=1)) == given[:1]
        wider = Limits(max_running_per_owner=2)
        store.look_at_limits(wider)
        assert self.claim(store, limits=wider) == given[1:2]
        store.look_at_limits(Limits())
        assert self.claim(store) == given[2:]

    def test_the_latest_word_of_a_tool_counts_for_what_waits(self, store: Store, work: Work) -> None:
        given = [work.queued(limits=ONE) for _ in range(3)]
        assert self.claim(store) == given[:1]
        given.append(work.queued(limits=ToolLimits(max_running=3)))
        started = self.claim(store)
        started += self.claim(store)
        assert sorted(started) == sorted([given[3], given[1]])

    def test_what_limits_hold_does_not_hide_what_is_behind_it(self, store: Store, work: Work) -> None:
        held = [work.queued(**keyed("a")) for _ in range(150)]
        free = work.queued()
        claimed: list[str] = []
        for _ in range(3):
            claimed += self.claim(store, 2)
        assert claimed == [held[0], free]

    def test_shares_take_turns_at_a_limit(self, store: Store, work: Work) -> None:
        ann = [work.queued(share="ann", limits=ONE) for _ in range(3)]
        bob = [work.queued(share="bob", owner="bob", limits=ONE) for _ in range(2)]
        order = []
        for _ in range(5):
            (running,) = self.claim(store, fair=True)
            order.append(running)
            assert self.claim(store, fair=True) == []
            self.end(store, running)
        assert order == [ann[0], bob[0], ann[1], bob[1], ann[2]]

    def test_a_place_is_not_kept_for_a_queue_without_workers(self, store: Store, work: Work) -> None:
        running = work.queued(limits=ONE)
        self.claim(store)
        elsewhere, here = work.queued(limits=ONE, queue="other"), work.queued(limits=ONE)
        assert store.claim([QUEUE, "other"], workers(2)) == []
        self.end(store, running)
        assert self.claim(store) == [here]
        assert store.claim(["other"], ["w1"]) == []
        self.end(store, here)
        assert task_ids(store.claim(["other"], ["w1"])) == [elsewhere]

    def test_one_task_that_is_claimed_by_its_id_is_held_too(self, store: Store, work: Work) -> None:
        work.claimed(limits=ONE)
        held = work.queued(limits=ONE)
        assert store.claim_task(held, "w2") is None
        assert store.get(held).waits_for is not None

    def test_a_limit_holds_for_processes_that_claim_at_the_same_time(
        self, store: Store, work: Work, store_url: str
    ) -> None:
        for _ in range(_RACED):
            work.queued(limits=TWO)
        calls = [(store_url, f"process{number}") for number in range(4)]
        seen = values_of(run_under_limit, *calls)
        assert max(max(one, default=0) for one in seen) <= 2
        assert store.count_states() == {State.SUCCEEDED: _RACED}


def claim_all(start: Start, url: str, worker: str) -> list[str]:
    """Claim until nothing is left; one at a time and then by the handful."""
    store = open_store(url)
    start()
    claimed: list[str] = []
    n = 1
    while leases := store.claim([QUEUE], [f"{worker}-{number}" for number in range(n)], fair=n % 3 == 0):
        claimed += [lease.task_id for lease in leases]
        n = n % 12 + 1
    store.close()
    return claimed


def submit_same(start: Start, url: str, keys: int) -> list[str]:
    """Submit what every other process submits, too."""
    store, clock = open_store(url), SystemClock()
    start()
    found = [store.submit(new_task(clock, {"k": k}, idempotency_key=f"k{k}")) for k in range(keys)]
    store.close()
    return [submission.task.task_id for submission in found]


def become_keeper(start: Start, url: str, holder: str) -> bool:
    store = open_store(url)
    start()
    kept = store.keep(holder, lease_s=3600)
    store.close()
    return kept


class Races(StoreTests):
    def test_eight_processes_claim_each_of_two_thousand_tasks_exactly_once(
        self, store: Store, store_url: str, clock: FakeClock
    ) -> None:
        news = [new_task(clock, share=f"s{number % 7}") for number in range(2000)]
        with ThreadPoolExecutor(32) as threads:
            list(threads.map(store.submit, news))
        calls = [(store_url, f"process{number}") for number in range(8)]
        claimed = values_of(claim_all, *calls)
        assert sorted(chain(*claimed)) == sorted(new.task_id for new in news)
        assert store.count_states() == {State.SCHEDULED: 2000}
        (depth,) = store.queue_depths()
        assert (depth.queued, depth.leased) == (0, 2000)

    def test_racing_identical_submissions_from_processes_make_one_task(
        self, store: Store, store_url: str
    ) -> None:
        submitted = values_of(submit_same, *[(store_url, 25)] * 4)
        assert submitted[0] == submitted[1] == submitted[2] == submitted[3]
        assert store.count_states() == {State.QUEUED: 25}

    def test_of_racing_processes_one_becomes_the_keeper(self, store: Store, store_url: str) -> None:
        kept = values_of(become_keeper, *[(store_url, f"p{n}") for n in range(4)])
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
