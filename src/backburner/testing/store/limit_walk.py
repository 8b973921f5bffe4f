"""A random walk under limits: none is ever exceeded, and nobody waits where there is room."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule, run_state_machine_as_test

from ...lifecycle import LEASED, TERMINAL, State
from ...limits import MINUTE_MS, Limit, Limits, ToolLimits, names_of
from ...reports import Failed, HandedBack, Outcome, Started, Succeeded
from ...retry import Retry
from ...store import Lease, Store, Wish
from ..clock import FakeClock
from .base import CRASH, WithWork, Work, new_task

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
_OUTCOMES: list[Outcome] = [Succeeded("1"), Failed(CRASH), HandedBack("leaving")]
_RETRY = Retry(max_attempts=2, backoff_s=5, on=("*",))
#: So many claims in a row that give nothing: nothing is to be had.
_CLAIMS = 4


@dataclass
class Model:
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
        self.models: dict[str, Model] = {}
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
        model = Model(f"{owner}-{self.mark}", f"{tool}-{self.mark}", own, key if own else "", own is not None)
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
        wishes = [Wish(new.queue, ["w1", "w2"])] if in_turn else []
        turn = self.store.take_turn((), [(new, None)], wishes, limits=self.limits)
        self._started([lease for leases in turn.leases for lease in leases])
        return new.task_id

    @rule(queues=st.sampled_from([[0], [1], [0, 1]]), n=st.integers(1, 3), fair=st.booleans())
    def claim(self, queues: list[int], n: int, fair: bool) -> None:
        names = [f"w{number}" for number in range(n)]
        claimed = self.store.claim([self.queues[at] for at in queues], names, fair=fair, limits=self.limits)
        self._started(claimed)

    @rule(task_id=tasks, outcome=st.sampled_from(_OUTCOMES))
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

    def _limits_of(self, model: Model) -> list[Limit]:
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


class WalkUnderLimits(WithWork):
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
