"""Submitting through the service: defaults, limits, idempotency, admission."""

from dataclasses import replace
from unittest.mock import create_autospec

import pytest

from backburner.core.lifecycle import State
from backburner.core.requests import TaskRequest
from backburner.core.task import Answer, Caller, Resources, TaskOptions, is_task_id
from backburner.engines.protocol import Engine
from backburner.errors import IdempotencyConflict, QueueFull
from backburner.service.tasks import TaskService
from backburner.settings import Settings
from backburner.store.protocol import Store
from backburner.testing import FakeClock
from backburner.tools.spec import Registry, ToolSpec, tool_from_function


def test_a_submitted_task_has_what_the_tool_and_the_settings_say(
    service: TaskService, store: Store, clock: FakeClock
) -> None:
    status = service.submit("add", {"a": 1})
    assert status.created
    assert status.position == 1
    assert is_task_id(status.task_id)
    task = store.get(status.task_id)
    assert task == status.task
    assert (task.owner, task.queue, task.target) == ("local", "cpu_standard", "module:lab#lab")
    assert (task.ttl_s, task.expires_at) == (100.0, clock.now_ms() + 100_000)
    assert task.resources.max_runtime_s == service.settings.limits.max_runtime_s


def test_a_tool_has_its_own_queue_time_to_live_and_time_limit(service: TaskService) -> None:
    task = service.submit("short", {}).task
    assert (task.queue, task.ttl_s, task.resources.max_runtime_s) == ("cpu_heavy", 5, 9)


def test_a_caller_may_ask_for_other_limits(service: TaskService) -> None:
    task = service.submit(
        "short", {}, queue="gpu_small", ttl_s=50, resources=Resources(max_runtime_s=2, memory_mb=64)
    ).task
    assert (task.queue, task.ttl_s) == ("gpu_small", 50)
    assert task.resources == Resources(max_runtime_s=2, memory_mb=64)


def test_an_async_tool_has_the_queue_for_those_that_wait_unless_it_or_its_caller_names_one(
    store: Store, tools: Registry, settings: Settings
) -> None:
    async def wait_here(inputs: object, context: object) -> None: ...

    async def add_later(a: int) -> None: ...

    tools.add(tool_from_function(add_later))
    tools.add(ToolSpec("elsewhere", wait_here, queue="cpu_heavy"))
    tools.add(ToolSpec("described", wait_here))
    service = TaskService(store, tools, replace(settings, async_queue="io"))
    queues = {name: service.submit(name, {"a": 1}).task.queue for name in ("add_later", "described", "add")}
    assert queues == {"add_later": "io", "described": "io", "add": "cpu_standard"}
    assert service.submit("elsewhere", {}).task.queue == "cpu_heavy"
    assert service.submit("add_later", {"a": 1}, queue="gpu_small").task.queue == "gpu_small"
    alike = TaskService(store, tools, replace(settings, async_queue=""))
    assert alike.submit("add_later", {"a": 1}).task.queue == "cpu_standard"
    service.close()
    alike.close()


def test_a_request_is_submitted_as_its_words_are(service: TaskService) -> None:
    options: TaskOptions = {
        "owner": "ann",
        "queue": "gpu_small",
        "priority": 3,
        "ttl_s": 50,
        "idempotency_key": "k",
        "external_id": "job",
        "parent_id": "tsk_parent",
        "tags": ["x"],
        "resources": Resources(memory_mb=64),
        "traceparent": "00-aa-bb-01",
        "tracestate": "vendor=1",
        "answers": {"colour": Answer("accept", {"name": "red"})},
        "caller": Caller("shop"),
        "meta": {"ticket": 7},
        "webhook": None,  # where nobody is told, as here, it says nothing of the task
    }
    assert options.keys() | {"tool_name", "inputs"} == set(TaskRequest.__struct_fields__)
    first = service.submit("add", {"a": 1}, **options)
    again = service.submit_request(TaskRequest("add", {"a": 1}, **options))
    assert (again.task, again.created) == (first.task, False)
    assert (first.task.answers, first.task.caller) == (options["answers"], options["caller"])
    assert first.task.meta == {"ticket": 7}


def test_a_tool_says_how_its_tasks_are_isolated_and_what_their_results_are(
    service: TaskService, tools: Registry
) -> None:
    tools.add(
        ToolSpec(
            "attached",
            lambda inputs, context: None,
            isolation="fresh",
            result_kind="call_tool_result",
            meta={"team": "a", "level": 1},
        )
    )
    task = service.submit("attached", {}, meta={"level": 2}).task
    assert (task.isolation, task.result_kind) == ("fresh", "call_tool_result")
    assert task.meta == {"team": "a", "level": 2}


@pytest.mark.parametrize("ttl_s", [10**6, float("inf"), 10**400])
def test_a_time_to_live_has_a_ceiling(service: TaskService, ttl_s: float) -> None:
    assert service.submit("add", {"a": 1}, ttl_s=ttl_s).task.ttl_s == 1000.0


def test_a_tag_is_kept_once(service: TaskService) -> None:
    assert service.submit("add", {"a": 1}, tags=["x", "y", "x"]).task.tags == ("x", "y")


def test_the_order_of_the_inputs_does_not_matter_to_a_key(service: TaskService) -> None:
    first = service.submit("add", {"a": 1, "b": 2}, idempotency_key="k")
    again = service.submit("add", {"b": 2, "a": 1}, idempotency_key="k")
    assert (again.task_id, again.created) == (first.task_id, False)
    with pytest.raises(IdempotencyConflict) as conflict:
        service.submit("add", {"a": 2}, idempotency_key="k")
    assert conflict.value.code == "idempotency_conflict"


def test_a_full_queue_says_when_to_come_back(service: TaskService, store: Store) -> None:
    for _ in range(2):
        service.submit("add", {"a": 1}, queue="tiny")
    with pytest.raises(QueueFull) as full:
        service.submit("add", {"a": 1}, queue="tiny")
    assert full.value.code == "queue_full"
    assert full.value.details["retry_after_s"] > 0
    assert store.count_states() == {State.QUEUED: 2}


def test_the_engine_is_told_of_each_new_task_once(store: Store, tools: Registry, settings: Settings) -> None:
    engine = create_autospec(Engine, instance=True)
    engine.submit.return_value = None
    service = TaskService(store, tools, settings, engine=engine)

    def told() -> list[str]:
        return [call.args[0].task_id for call in engine.notify.call_args_list]

    try:
        first = service.submit("add", {"a": 1}, idempotency_key="k")
        service.submit("add", {"a": 1}, idempotency_key="k")
        assert told() == [first.task_id]
        service.cancel(first.task_id)
        service.retry(first.task_id)
        assert told() == [first.task_id] * 2
    finally:
        service.close()


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("", ["ann 1", "ann 2", "bob 1"]),
        ("owner", ["ann 1", "bob 1", "ann 2"]),
        ("project:", ["ann 1", "ann 2", "bob 1"]),
    ],
)
def test_a_queue_is_shared_as_the_settings_say(
    store: Store, tools: Registry, settings: Settings, by: str, order: list[str]
) -> None:
    service = TaskService(store, tools, replace(settings, fair_share=by))
    try:
        for owner, project in (("ann", "x"), ("ann", "y"), ("bob", "x")):
            name = f"{owner} {1 if project == 'x' or owner == 'bob' else 2}"
            tags = ["other", f"project:{project}"]
            service.submit("any", {"name": name}, owner=owner, tags=tags)
        leases = store.claim(["cpu_standard"], ["1", "2", "3"], fair=bool(by))
        assert [(lease.task.inputs or {})["name"] for lease in leases] == order
    finally:
        service.close()


def test_an_external_id_finds_its_owners_task(service: TaskService) -> None:
    task_id = service.submit("add", {"a": 1}, owner="ann", external_id="job").task_id
    found = service.find("job", owner="ann")
    assert found is not None
    assert (found.task_id, found.position) == (task_id, 1)
    assert service.find("job", owner="bob") is None
