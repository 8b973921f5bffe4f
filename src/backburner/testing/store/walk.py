"""A random walk through the lifecycle, compared step by step with a small model."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ...errors import LeaseLost, NotAllowedNow
from ...lifecycle import LEASED, TERMINAL, TRANSITIONS, Signal, State, next_state
from ...reports import (
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
from ...retry import NO_RETRY, Retry
from ...store import Lease, Store
from ...task import Event
from ..clock import FakeClock
from .base import CRASH, LOST, OVER, STOPPED, TWICE_MORE, WithWork, Work

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
class Model:
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
        self.models: dict[str, Model] = {}
        self.questions = 0

    # -- what can be done

    @rule(target=tasks, retry=st.sampled_from(_POLICIES), ttl_s=st.sampled_from([None, 25]))
    def submit(self, retry: Retry, ttl_s: int | None) -> str:
        expires_at = None if ttl_s is None else self.clock.now_ms() + ttl_s * 1000
        task_id = self.work.queued(queue=self.queue, retry=retry, ttl_s=ttl_s)
        self.models[task_id] = Model(self.clock, retry, ttl_s, expires_at)
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


class Walk(WithWork):
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
