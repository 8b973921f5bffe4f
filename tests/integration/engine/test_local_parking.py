"""Tasks that wait for an answer, and the workers that they leave to others meanwhile."""

from __future__ import annotations

import pytest

from backburner.core.lifecycle import State
from backburner.core.task import Resources
from backburner.engines.local.supervisor.workers import MOST_PAUSED
from tests.contracts.engine.base import eventually
from tests.integration.engine.conftest import StartLocal
from tests.integration.engine.local import Local, kill

pytestmark = pytest.mark.slow

_ANN = {"action": "accept", "content": {"name": "Ann"}}


def start(start_local: StartLocal, workers: int = 2) -> Local:
    return start_local(queues={"cpu_standard": {"workers": workers}})


def asked(local: Local, task_id: str) -> str:
    """The key of the one open question."""
    (question,) = local.until_state(task_id, State.INPUT_REQUIRED).questions
    return question.key


def answer(local: Local, task_id: str) -> None:
    local.service.answer_input(task_id, {asked(local, task_id): _ANN})


def test_others_run_while_as_many_tasks_as_workers_wait_for_answers(start_local: StartLocal) -> None:
    local = start(start_local)
    waiting = [local.submit("ask_name") for _ in range(2)]
    for task_id in waiting:
        asked(local, task_id)
    assert local.run("add", a=1, b=2).state is State.SUCCEEDED
    assert [local.store.get(task_id).state for task_id in waiting] == [State.INPUT_REQUIRED] * 2
    for task_id in waiting:
        answer(local, task_id)
    assert [local.end(task_id).result for task_id in waiting] == [
        {"action": "accept", "content": {"name": "Ann"}, "accepted": True}
    ] * 2
    assert [local.store.get(task_id).attempt for task_id in waiting] == [1, 1]


def test_a_task_with_its_answer_goes_on_when_a_worker_is_free_and_before_others(
    start_local: StartLocal,
) -> None:
    local = start(start_local, workers=1)
    waiting = local.submit("ask_name")
    asked(local, waiting)
    running = local.submit("sleep", seconds=60)
    local.until_state(running, State.RUNNING)
    later = [local.submit("add", a=1, b=2) for _ in range(3)]
    answer(local, waiting)
    local.service.cancel(running)
    ended = [local.end(task_id) for task_id in (waiting, *later)]
    assert {task.state for task in ended} == {State.SUCCEEDED}
    first, *others = [task.completed_at or 0 for task in ended]
    assert first <= min(others)


@pytest.mark.whole  # it takes many processes
def test_no_more_wait_outside_than_may(start_local: StartLocal) -> None:
    local = start(start_local, workers=2)
    waiting = [local.submit("ask_name") for _ in range(MOST_PAUSED + 1)]
    for task_id in waiting:
        asked(local, task_id)
    third = local.submit("ask_name")
    asked(local, third)  # on the worker of the one that waits outside
    fourth = local.submit("add", a=1, b=2)
    answer(local, third)
    begun, (question,) = local.end(fourth).started_at, local.store.input_requests(third)
    assert question.answered_at is not None
    assert begun is not None
    assert begun >= question.answered_at
    assert local.end(third).state is State.SUCCEEDED
    for task_id in waiting:
        answer(local, task_id)
        assert local.end(task_id).state is State.SUCCEEDED


def parked(local: Local) -> str:
    """A task that waits outside: its only worker has done another one since."""
    task_id = local.submit("ask_name")
    asked(local, task_id)
    assert local.run("add", a=1, b=2).state is State.SUCCEEDED
    return task_id


def test_a_task_that_waits_outside_can_be_cancelled(start_local: StartLocal) -> None:
    local = start(start_local, workers=1)
    task_id = parked(local)
    local.service.cancel(task_id)
    assert local.end(task_id).state is State.CANCELLED
    assert eventually(lambda: len(local.runners()) <= 1)


@pytest.mark.whole
def test_a_task_that_waits_outside_keeps_to_its_time_limit(start_local: StartLocal) -> None:
    local = start(start_local, workers=1)
    task_id = local.submit("ask_name", options={"resources": Resources(max_runtime_s=12.0)})
    asked(local, task_id)
    assert local.run("add", a=1, b=2).state is State.SUCCEEDED
    assert local.end(task_id).state is State.TIMED_OUT


@pytest.mark.whole
def test_a_task_whose_process_dies_while_it_waits_outside_is_tried_again(start_local: StartLocal) -> None:
    local = start(start_local, workers=1)
    task_id = parked(local)
    kill(local.runner_of(task_id))
    local.until(task_id, lambda task: task.attempt == 2 and task.state is State.INPUT_REQUIRED)
    answer(local, task_id)
    assert local.end(task_id).state is State.SUCCEEDED


def test_a_task_that_waits_outside_survives_its_supervisors_death(start_local: StartLocal) -> None:
    local = start(start_local, workers=1)
    task_id = parked(local)
    kill(local.supervisor())
    local.until(task_id, lambda task: task.attempt == 2 and task.state is State.INPUT_REQUIRED)
    answer(local, task_id)
    assert local.end(task_id).state is State.SUCCEEDED
