"""Estimates of submitted tasks, by what the author says and by experience."""

import pytest

from backburner.core.reports import Succeeded
from backburner.service.tasks import TaskService
from backburner.settings import Settings
from backburner.store.protocol import Store
from backburner.testing import FakeClock
from backburner.tools.estimates import EstimateSource, ExpectedRuntime
from backburner.tools.spec import Registry, ToolSpec
from tests.unit.service.conftest import Worker, nothing


@pytest.mark.parametrize(
    ("tool", "expected"), [("fixed", 30), ("scaled", 14), ("unguessable", None), ("any", None)]
)
def test_before_any_run_the_author_knows_best(
    service: TaskService, tool: str, expected: float | None
) -> None:
    assert service.submit(tool, {"steps": 7}).task.estimate_s == expected


def run(
    service: TaskService, worker: Worker, clock: FakeClock, tool: str, seconds: float, **inputs: object
) -> None:
    lease = worker.start(service.submit(tool, inputs).task_id)
    clock.advance(seconds)
    service.store.report(lease, Succeeded("1"))


def test_what_a_tool_took_before_is_expected_next_time(
    service: TaskService, store: Store, tools: Registry, settings: Settings, worker: Worker, clock: FakeClock
) -> None:
    for seconds in (4, 4, 4, 4, 4):
        run(service, worker, clock, "any", seconds, x="small")
    for seconds in (90, 90, 90, 90, 90):
        run(service, worker, clock, "any", seconds, x="large" * 200)
    for _ in range(3):
        run(service, worker, clock, "scaled", 10, steps=10)
    fresh = TaskService(store, tools, settings, clock=clock)  # a service remembers history for a moment
    try:
        assert fresh.submit("any", {"x": "tiny!"}).task.estimate_s == 4
        assert fresh.submit("any", {"x": "LARGE" * 200}).task.estimate_s == 90
        assert fresh.submit("scaled", {"steps": 100}).task.estimate_s == 100
        assert fresh.submit("fixed", {}).task.estimate_s == 30
    finally:
        fresh.close()


def test_only_runs_with_the_same_inputs_decide_that_a_call_takes_long(
    service: TaskService, store: Store, tools: Registry, settings: Settings, worker: Worker, clock: FakeClock
) -> None:
    run(service, worker, clock, "any", 90, x="long")
    fresh = TaskService(store, tools, settings, clock=clock)
    try:
        for x, left_s in (("long", 90), ("fast", None)):
            status = fresh.submit("any", {"x": x})
            assert (status.eta_s, fresh.known_left_s(status, {"x": x})) == (90, left_s)
        assert fresh.known_left_s(fresh.submit("fixed", {}), {}) == 30
    finally:
        fresh.close()


def test_a_guess_is_made_of_the_apps_other_tools_and_keeps_out_of_what_is_known(
    service: TaskService, store: Store, tools: Registry, settings: Settings, worker: Worker, clock: FakeClock
) -> None:
    assert service.submit("any", {}).estimate == ExpectedRuntime(60.0, EstimateSource.DEFAULT)
    for tool, seconds in (("fixed", 20), ("fixed", 20), ("scaled", 40), ("short", 90), ("gone", 1000)):
        if tool in tools:
            run(service, worker, clock, tool, seconds, steps=1)
        else:  # a tool of another app on the same store
            others = Registry()
            others.add(ToolSpec(tool, nothing))
            other = TaskService(store, others, settings, clock=clock)
            run(other, worker, clock, tool, seconds)
            other.close()
    fresh = TaskService(store, tools, settings, clock=clock)
    try:
        status = fresh.submit("any", {})
        assert status.estimate == ExpectedRuntime(40, EstimateSource.OTHER_TOOLS)
        assert (status.task.estimate_s, status.eta_s) == (None, None)
        listed = {task.tool_name: fresh.view(task).estimate.source for task in fresh.list().tasks}
        assert (listed["any"], listed["fixed"]) == (EstimateSource.OTHER_TOOLS, EstimateSource.AUTHOR)
    finally:
        fresh.close()


def test_the_time_left_goes_down_as_a_task_runs(
    service: TaskService, worker: Worker, clock: FakeClock
) -> None:
    status = service.submit("fixed", {})
    assert status.eta_s == 30
    worker.start(status.task_id)
    clock.advance(12)
    assert service.status(status.task_id).eta_s == 18
