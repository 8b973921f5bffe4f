"""A stranger's task looks like no task, whatever is asked about it."""

from collections.abc import Callable
from typing import Any

import pytest

from backburner.core.reports import Failed
from backburner.core.task import TaskError, new_task_id
from backburner.errors import TaskNotFound
from backburner.service.tasks import TaskService
from backburner.store.protocol import Store
from tests.unit.service.conftest import Worker

CALLS: dict[str, Callable[[TaskService, str], Any]] = {
    "status": lambda service, task_id: service.status(task_id, owner="bob"),
    "head": lambda service, task_id: service.head(task_id, owner="bob"),
    "artifacts": lambda service, task_id: service.artifacts(task_id, owner="bob"),
    "logs": lambda service, task_id: service.logs(task_id, owner="bob"),
    "result": lambda service, task_id: service.result(task_id, owner="bob"),
    "cancel": lambda service, task_id: service.cancel(task_id, owner="bob"),
    "retry": lambda service, task_id: service.retry(task_id, owner="bob"),
    "delete": lambda service, task_id: service.delete(task_id, owner="bob"),
    "answer_input": lambda service, task_id: service.answer_input(task_id, {}, owner="bob"),
    "wait": lambda service, task_id: service.wait(task_id, 0, owner="bob"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", ["queued", "failed"])
def test_anothers_id_is_answered_exactly_as_an_unknown_one(
    service: TaskService, store: Store, worker: Worker, call: str, state: str
) -> None:
    task_id = service.submit("add", {"a": 1}, owner="ann").task_id
    if state == "failed":
        worker.finish(task_id, Failed(TaskError("tool_error", "It broke.")))
    before = store.get(task_id)
    unknown = new_task_id(before.submitted_at)
    answers = []
    for asked in (task_id, unknown):
        with pytest.raises(TaskNotFound) as refused:
            CALLS[call](service, asked)
        answers.append(str(refused.value.to_dict()).replace(asked, "…"))
    assert answers[0] == answers[1]
    assert store.get(task_id) == before


def test_a_list_shows_the_owners_own_tasks_and_the_operator_everyones(service: TaskService) -> None:
    anns = service.submit("add", {"a": 1}, owner="ann").task_id
    bobs = service.submit("add", {"a": 1}, owner="bob").task_id
    assert [task.task_id for task in service.list(owner="ann").tasks] == [anns]
    assert [task.task_id for task in service.list(owner=None).tasks] == [bobs, anns]
    assert service.list().tasks == []
    assert service.status(anns, owner=None).task.owner == "ann"
