"""Random walks through the lifecycle, with and without limits, compared with a model."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from backburner.core.lifecycle import LEASED, TERMINAL, TRANSITIONS, Signal, State, next_state
from backburner.core.limits import MINUTE_MS, Limit, Limits, ToolLimits, names_of
from backburner.core.reports import (
    Asked,
    Cancelled,
    Change,
    Failed,
    HandedBack,
    Outcome,
    Started,
    Stopping,
    Succeeded,
    TimedOut,
)
from backburner.core.retry import NO_RETRY, Retry
from backburner.core.task import Event
from backburner.errors import LeaseLost, NotAllowedNow
from backburner.store.protocol import ClaimRequest, Lease, Store
from backburner.testing import FakeClock
from tests.contracts.store.base import CRASH, LOST, OVER, STOPPED, TWICE_MORE, StoreTests, Work, new_task

_POLICIES = [NO_RETRY, TWICE_MORE, Retry(max_attempts=2)]
_OUTCOMES: list[Outcome] = [
    Succeeded("1"),
    Failed(CRASH),
    Failed(LOST),
    TimedOut(OVER),
    Cancelled(STOPPED),
    HandedBack("leaving"),
]


@dataclass
class TaskModel:
    """What a task should be."""

    clock: FakeClock
    retry: Retry
    ttl_s: int | None
    expires_at: int | None
    ran: bool = False
    state: State = State.QUEUED
    attempt: int = 0
    failures: int = 0
    ready_at: int | None = None
    lease: Lease | None = None
    late: list[Lease] = field(default_factory=list)
    open_questions: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=lambda: ["submit"])

    def take(self, signal: Signal) -> bool:
        """Move as the table says; whether it allows to."""
        after = next_state(self.state, signal)
        if after is None:
            return False
        self.state = after
        self.signals.append(signal)
        if signal is Signal.START or after is State.EXPIRED:
            self.ran, self.expires_at = True, None
        elif after in TERMINAL or (after is State.QUEUED and self.ran):
            self.ran = after is not State.QUEUED
            self.expires_at = None if self.ttl_s is None else self.clock.now_ms() + self.ttl_s * 1000
        if after not in LEASED and self.lease is not None:
            self.late.append(self.lease)
            self.lease = None
            self.open_questions = []
        return True

    def end(self, outcome: Outcome, now: int) -> bool:
        """End the attempt; False when the table knows no such end here."""
        signal, delay_s = Signal.HAND_BACK, None
        match outcome:
            case Succeeded():
                signal = Signal.SUCCEED
            case TimedOut():
                signal = Signal.TIME_OUT
            case Cancelled():
                asked_for = self.state in (State.CANCEL_REQUESTED, State.CANCELLING)
                signal = Signal.CONFIRM if asked_for else Signal.FAIL
            case Failed(error=error):
                delay_s = self.retry.delay_s(error, self.failures + 1)
                signal = Signal.FAIL if delay_s is None else Signal.RETRY
        if not self.take(signal):
            return False
        self.failures += not isinstance(outcome, Succeeded | HandedBack)
        if self.state is State.QUEUED and delay_s:
            self.ready_at = now + int(delay_s * 1000)
        return True


class LifecycleWalk(RuleBasedStateMachine):
    """Does to a store what can be done to tasks, in any order, and knows what must come of it."""

    tasks: Bundle[str] = Bundle("tasks")

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work, self.store, self.clock = work, work.store, work.clock
        self.queue = f"queue-{secrets.token_hex(4)}"
        self.models: dict[str, TaskModel] = {}
        self.questions = 0

    # -- what can be done

    @rule(target=tasks, retry=st.sampled_from(_POLICIES), ttl_s=st.sampled_from([None, 25]))
    def submit(self, retry: Retry, ttl_s: int | None) -> str:
        expires_at = None if ttl_s is None else self.clock.now_ms() + ttl_s * 1000
        task_id = self.work.queued(queue=self.queue, retry=retry, ttl_s=ttl_s)
        self.models[task_id] = TaskModel(self.clock, retry, ttl_s, expires_at)
        return task_id

    @rule(seconds=st.sampled_from([1, 10, 20]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(task_id=tasks)
    def claim_task(self, task_id: str) -> None:
        self._make_ready()
        model = self.models[task_id]
        lease = self.store.claim_task(task_id, f"worker-of-{task_id}")
        can = model.state is State.QUEUED and model.ready_at is None
        assert (lease is not None) == can
        if lease is not None:
            self._claimed(lease)

    @rule()
    def claim_the_best(self) -> None:
        self._make_ready()
        ready = (i for i, m in self.models.items() if m.state is State.QUEUED and m.ready_at is None)
        best = next(ready, None)
        leases = self.store.claim([self.queue], [f"worker-of-{best}"])
        assert [lease.task_id for lease in leases] == ([] if best is None else [best])
        for lease in leases:
            self._claimed(lease)

    @rule(task_id=tasks)
    def start(self, task_id: str) -> None:
        self._report(task_id, Started(), Signal.START)

    @rule(task_id=tasks)
    def stop(self, task_id: str) -> None:
        self._report(task_id, Stopping(), Signal.STOP)

    @rule(task_id=tasks)
    def ask(self, task_id: str) -> None:
        model = self.models[task_id]
        if model.lease is None:
            return
        self.questions += 1
        key = f"q{self.questions}"
        change = Asked((self.work.question(model.lease, key),))
        if self._report(task_id, change, Signal.ASK):
            model.open_questions.append(key)

    @rule(task_id=tasks, all_of_them=st.booleans())
    def answer(self, task_id: str, all_of_them: bool) -> None:
        model = self.models[task_id]
        keys = model.open_questions if all_of_them else model.open_questions[:1]
        self.store.answer(task_id, dict.fromkeys((*keys, "unknown"), ("accept", 1)))
        if model.state is State.INPUT_REQUIRED:
            model.open_questions = [key for key in model.open_questions if key not in keys]
            if not model.open_questions:
                model.take(Signal.ANSWER)

    @rule(task_id=tasks, outcome=st.sampled_from(_OUTCOMES))
    def end(self, task_id: str, outcome: Outcome) -> None:
        model = self.models[task_id]
        if model.lease is None:
            return
        lease = model.lease
        if model.end(outcome, self.clock.now_ms()):
            self.store.report(lease, outcome)
        else:
            self._refused(lease, outcome)

    @rule(task_id=tasks, outcome=st.sampled_from(_OUTCOMES))
    def report_late(self, task_id: str, outcome: Outcome) -> None:
        for lease in self.models[task_id].late:
            self._refused(lease, outcome)

    @rule(task_id=tasks)
    def cancel(self, task_id: str) -> None:
        model = self.models[task_id]
        model.take(Signal.CANCEL)
        assert self.store.cancel(task_id).state is model.state
        if model.state in TERMINAL:
            model.ready_at = None

    @rule(task_id=tasks)
    def retry(self, task_id: str) -> None:
        model = self.models[task_id]
        if model.state in TERMINAL and model.take(Signal.RETRY):
            model.failures = 0
            self.store.retry(task_id)
        else:
            with pytest.raises(NotAllowedNow):
                self.store.retry(task_id)

    @rule(task_id=tasks)
    def lose_the_worker(self, task_id: str) -> None:
        model = self.models[task_id]
        lost = self.store.lose(workers=[f"worker-of-{task_id}"])
        assert lost == ([task_id] if model.lease else [])
        if model.lease is not None:
            model.end(Failed(LOST), self.clock.now_ms())

    @rule()
    def expire(self) -> None:
        expired = set(self.store.expire()) & set(self.models)
        now = self.clock.now_ms()
        due = {i for i, m in self.models.items() if m.expires_at is not None and m.expires_at <= now}
        assert expired == {i for i in due if self.models[i].take(Signal.EXPIRE)}
        for task_id in expired:
            self.models[task_id].ready_at = None

    # -- what must be true

    @invariant()
    def each_task_is_as_the_model_says(self) -> None:
        for task_id, model in self.models.items():
            task = self.store.get(task_id)
            assert (task.state, task.attempt, task.failures) == (model.state, model.attempt, model.failures)
            assert (task.ready_at, task.expires_at) == (model.ready_at, model.expires_at)

    @invariant()
    def each_trail_is_a_path_through_the_table(self) -> None:
        for task_id, model in self.models.items():
            events = self.store.events(task_id)
            assert_legal(events)
            assert [event.signal for event in events] == model.signals

    @invariant()
    def the_queue_is_as_deep_as_it_should_be(self) -> None:
        depths = [depth for depth in self.store.queue_depths() if depth.queue == self.queue]
        counted = [
            sum(model.state is State.QUEUED for model in self.models.values()),
            sum(model.state in LEASED for model in self.models.values()),
        ]
        assert [(depth.queued, depth.leased) for depth in depths] == ([tuple(counted)] if depths else [])
        assert depths or not any(counted)

    # -- how it is done

    def _make_ready(self) -> None:
        now = self.clock.now_ms()
        for model in self.models.values():
            if model.ready_at is not None and model.ready_at <= now:
                model.ready_at = None
        self.store.make_ready()

    def _claimed(self, lease: Lease) -> None:
        model = self.models[lease.task_id]
        assert model.take(Signal.CLAIM)
        model.attempt += 1
        model.lease = lease

    def _report(self, task_id: str, change: Change, signal: Signal) -> bool:
        model = self.models[task_id]
        if model.lease is None:
            return False
        self.store.report(model.lease, change)
        return model.take(signal)

    def _refused(self, lease: Lease, outcome: Outcome) -> None:
        with pytest.raises(LeaseLost):
            self.store.report(lease, outcome)


def assert_legal(events: list[Event]) -> None:
    """A trail begins with `submit`, has no gap, and takes only steps that the table allows."""
    assert (events[0].signal, events[0].from_state, events[0].to_state) == ("submit", None, State.QUEUED)
    for before, event in pairwise(events):
        assert event.from_state is before.to_state
        assert TRANSITIONS[before.to_state][Signal(event.signal)] is event.to_state
        assert event.seq == before.seq + 1
        assert event.ts >= before.ts


class LifecycleWalks(StoreTests):
    def test_no_walk_leads_to_a_state_that_the_table_forbids(self, store: Store, clock: FakeClock) -> None:
        work = Work(store, clock)

        class WalkOnThisStore(LifecycleWalk):
            def __init__(self) -> None:
                super().__init__(work)

        run_state_machine_as_test(
            WalkOnThisStore,
            settings=settings(
                max_examples=50,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


_TOOLS = {
    "narrow": ToolLimits(max_running=2, max_running_per_key=1),
    "slow": ToolLimits(max_starts_per_minute=3, max_running_per_key=2),
    "plain": None,
}
_OPERATORS = [
    Limits(),
    Limits(max_running_per_owner=2),
    Limits(max_starts_per_minute_per_owner=4, tools={"plain*": ToolLimits(max_running=1)}),
    Limits(max_running_per_owner=3, tools={"*": ToolLimits(max_running=2)}),
]
_LIMITED_OUTCOMES: list[Outcome] = [Succeeded("1"), Failed(CRASH), HandedBack("leaving")]
_RETRY = Retry(max_attempts=2, backoff_s=5, on=("*",))
#: So many claims in a row that give nothing: nothing is to be had.
_CLAIMS = 4


@dataclass
class LimitedTask:
    """What is known of a task here: its limits, and whether it ever was under one."""

    owner: str
    tool_name: str
    own: ToolLimits | None
    key: str
    counts: bool
    lease: Lease | None = None


class LimitWalk(RuleBasedStateMachine):
    """Does to a store what can be done to tasks under limits, and counts for itself."""

    tasks: Bundle[str] = Bundle("tasks")

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work, self.store, self.clock = work, work.store, work.clock
        self.mark = secrets.token_hex(4)
        self.queues = [f"q1-{self.mark}", f"q2-{self.mark}"]
        self.models: dict[str, LimitedTask] = {}
        self.limits, self.changed = Limits(), False
        self.starts: list[tuple[int, str]] = []

    # -- what can be done

    @rule(
        target=tasks,
        owner=st.sampled_from("ab"),
        tool=st.sampled_from([*_TOOLS]),
        key=st.sampled_from(["", "x", "y"]),
        queue=st.sampled_from([0, 0, 1]),
        priority=st.sampled_from([0, 0, 3]),
        in_turn=st.booleans(),
    )
    def submit(self, owner: str, tool: str, key: str, queue: int, priority: int, in_turn: bool) -> str:
        own = _TOOLS[tool]
        model = LimitedTask(
            f"{owner}-{self.mark}", f"{tool}-{self.mark}", own, key if own else "", own is not None
        )
        new = new_task(
            self.clock,
            owner=model.owner,
            tool_name=model.tool_name,
            limits=own,
            concurrency_key=model.key,
            queue=self.queues[queue],
            priority=priority,
            share=model.owner,
            retry=_RETRY,
        )
        self.models[new.task_id] = model
        wishes = [ClaimRequest(new.queue, ["w1", "w2"])] if in_turn else []
        turn = self.store.commit_batch((), [(new, None)], wishes, limits=self.limits)
        self._started([lease for leases in turn.leases for lease in leases])
        return new.task_id

    @rule(queues=st.sampled_from([[0], [1], [0, 1]]), n=st.integers(1, 3), fair=st.booleans())
    def claim(self, queues: list[int], n: int, fair: bool) -> None:
        names = [f"w{number}" for number in range(n)]
        claimed = self.store.claim([self.queues[at] for at in queues], names, fair=fair, limits=self.limits)
        self._started(claimed)

    @rule(task_id=tasks, outcome=st.sampled_from(_LIMITED_OUTCOMES))
    def end(self, task_id: str, outcome: Outcome) -> None:
        model = self.models[task_id]
        if model.lease is not None:
            self.store.report(model.lease, Started(), outcome)
            model.lease = None

    @rule(task_id=tasks)
    def lose(self, task_id: str) -> None:
        silent = [lease for lease in self.store.leases() if lease.task_id == task_id]
        self.store.lose(silent=silent)
        self.models[task_id].lease = None

    @rule(task_id=tasks)
    def cancel(self, task_id: str) -> None:
        self.store.cancel(task_id)

    @rule(task_id=tasks)
    def retry(self, task_id: str) -> None:
        if self.store.get(task_id).state in TERMINAL - {State.SUCCEEDED}:
            self.store.retry(task_id)

    @rule(seconds=st.sampled_from([1, 10, 61]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(limits=st.sampled_from(_OPERATORS))
    def restart_with(self, limits: Limits) -> None:
        named = {f"{pattern.rstrip('*')}*{self.mark}": one for pattern, one in limits.tools.items()}
        owners = (limits.max_running_per_owner, limits.max_starts_per_minute_per_owner)
        self.limits, self.changed = Limits(*owners, named), True

    @rule(fair=st.booleans())
    def claim_all(self, fair: bool) -> None:
        """With workers for all: then who still waits is kept by a limit. Nobody but claims sees to that."""
        if self.changed:
            self.store.look_at_limits(self.limits)
            self.changed = False
        in_vain = 0
        while in_vain < _CLAIMS:
            names = [f"w{number}" for number in range(8)]
            claimed = self.store.claim(self.queues, names, fair=fair, limits=self.limits)
            self._started(claimed)
            in_vain = 0 if claimed else in_vain + 1
        for task_id, model in self.models.items():
            task = self.store.get(task_id)
            waits_for_retry = task.ready_at is not None and task.waits_for is None
            if task.state is State.QUEUED and not waits_for_retry:
                assert task.waits_for is not None, f"{task_id} waits for nothing"
                assert any(self._count(one) >= one.most for one in self._limits_of(model)), task.waits_for

    def teardown(self) -> None:
        """Whatever was done, all come to their end."""
        self.limits, self.changed = Limits(), True
        for _ in range(len(self.models) + 5):
            self.clock.advance(MINUTE_MS / 1000 + 1)
            self.claim_all(fair=False)
            for task_id in self.models:
                self.end(task_id, Succeeded("1"))
        assert all(self.store.get(task_id).finished for task_id in self.models)

    # -- what must be true

    def _started(self, leases: list[Lease]) -> None:
        for lease in leases:
            model = self.models[lease.task_id]
            model.lease = lease
            limits = self._limits_of(model)
            model.counts |= bool(limits)
            self.starts += [(self.clock.now_ms(), limit.name) for limit in limits]
        for lease in leases:
            for limit in self._limits_of(self.models[lease.task_id]):
                assert self._count(limit) <= limit.most, limit.reason

    def _limits_of(self, model: LimitedTask) -> list[Limit]:
        return self.limits.of(model.owner, model.tool_name, model.key, model.own)

    def _count(self, limit: Limit) -> int:
        """How many count at a limit now, by what was seen to start."""
        if limit.of_starts:
            since = self.clock.now_ms() - MINUTE_MS
            return sum(name == limit.name and at > since for at, name in self.starts)
        running: Counter[str] = Counter()
        for task_id, model in self.models.items():
            if model.counts and self.store.head(task_id).state in LEASED:
                running.update(names_of(model.owner, model.tool_name, model.key))
        return running[limit.name]


class LimitWalks(StoreTests):
    def test_no_walk_exceeds_a_limit_or_forgets_who_waits_for_one(
        self, store: Store, clock: FakeClock
    ) -> None:
        work = Work(store, clock)

        class WalkOnThisStore(LimitWalk):
            def __init__(self) -> None:
                super().__init__(work)

        run_state_machine_as_test(
            WalkOnThisStore,
            settings=settings(
                max_examples=20,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
