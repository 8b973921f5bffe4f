"""Status, lists, logs and results through the service."""

from pathlib import Path

import pytest

from backburner.core.lifecycle import State
from backburner.core.reports import Asked, Failed, Logged, Progressed, Registered, Succeeded
from backburner.core.task import Artifact, InputRequest, LogLine, Progress, TaskError
from backburner.errors import NotAllowedNow, NotFinished, TaskNotFound
from backburner.service.tasks import TaskService
from backburner.settings import Settings
from backburner.store.artifacts.folder import OwnFolder
from backburner.store.protocol import Store
from backburner.testing import FakeClock
from backburner.tools.spec import Registry
from tests.unit.service.conftest import Worker


def test_a_status_has_the_place_in_the_queue_and_when_to_look_again(service: TaskService) -> None:
    first, second = (service.submit("add", {"a": 1}) for _ in range(2))
    assert (first.position, second.position) == (1, 2)
    assert service.status(second.task_id).position == 2
    assert 50 <= service.status(second.task_id).poll_after_ms <= 10_000


def test_a_running_task_has_an_eta_from_its_progress(
    service: TaskService, store: Store, worker: Worker, clock: FakeClock
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    clock.advance(30)
    store.report(lease, Progressed(Progress(percent=75)))
    status = service.status(task_id)
    assert status.eta_s == pytest.approx(10)
    assert status.poll_after_ms == 1250
    assert status.position is None


def test_a_finished_task_has_no_eta(service: TaskService, worker: Worker) -> None:
    task_id = service.submit("fixed", {}).task_id
    worker.finish(task_id, Succeeded("1"))
    assert service.status(task_id).eta_s is None


def test_a_waiting_task_shows_its_open_questions(service: TaskService, store: Store, worker: Worker) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    asked = tuple(
        InputRequest(task_id, key, 1, "elicitation/create", {"message": key}, asked_at=1) for key in "ab"
    )
    store.report(lease, Asked(asked))
    assert [question.key for question in service.status(task_id).questions] == ["a", "b"]
    status = service.answer_input(task_id, {"a": {"action": "decline"}, "nobody asked": {"action": "accept"}})
    assert (status.task.state, [question.key for question in status.questions]) == (
        State.INPUT_REQUIRED,
        ["b"],
    )
    status = service.answer_input(task_id, {"b": {"action": "accept", "content": {"x": 1}}})
    assert (status.task.state, status.questions) == (State.RUNNING, ())
    contents = {question.key: question.content for question in store.input_requests(task_id)}
    assert contents == {"a": None, "b": {"x": 1}}


def test_the_answer_to_another_kind_of_request_is_its_result(
    service: TaskService, store: Store, worker: Worker
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    store.report(lease, Asked((InputRequest(task_id, "s", 1, "sampling/createMessage", {}, asked_at=1),)))
    service.answer_input(task_id, {"s": {"role": "assistant"}})
    (question,) = store.input_requests(task_id)
    assert (question.action, question.content) == ("accept", {"role": "assistant"})


def test_pages_are_joined_by_cursors(service: TaskService) -> None:
    submitted = [service.submit("add", {"a": n}).task_id for n in range(5)]
    found: list[str] = []
    cursor = None
    while True:
        page = service.list(limit=2, cursor=cursor)
        found += [task.task_id for task in page.tasks]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == submitted[::-1]


def test_a_last_page_that_is_just_full_has_no_cursor(service: TaskService) -> None:
    for n in range(4):
        service.submit("add", {"a": n})
    second = service.list(limit=2, cursor=service.list(limit=2).next_cursor)
    assert (len(second.tasks), second.next_cursor) == (2, None)


def test_logs_are_read_from_where_the_last_page_ended(
    service: TaskService, store: Store, worker: Worker
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    lines = [LogLine(n, n, "stdout", "info", str(n)) for n in range(1, 6)]
    store.report(lease, Logged(tuple(lines[:3])))
    first = service.logs(task_id, limit=2)
    assert (first.lines, first.truncated) == (lines[:2], True)
    second = service.logs(task_id, cursor=first.next_cursor)
    assert (second.lines, second.truncated) == ([lines[2]], False)
    nothing_new = service.logs(task_id, cursor=second.next_cursor)
    assert (nothing_new.lines, nothing_new.next_cursor) == ([], second.next_cursor)
    store.report(lease, Logged(tuple(lines[3:])))
    assert service.logs(task_id, cursor=second.next_cursor).lines == lines[3:]


def test_a_result_comes_with_its_artifacts(service: TaskService, store: Store, worker: Worker) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    lease = worker.start(task_id)
    with pytest.raises(NotFinished) as unfinished:
        service.result(task_id)
    assert unfinished.value.code == "not_finished"
    artifact = Artifact("art_1", task_id, 1, "o.txt", "file", 3, "0" * 64, "p", 1)
    store.report(lease, Registered(artifact), Succeeded('{"x":1}'))
    result = service.result(task_id)
    assert (result.task.result, result.artifacts) == ({"x": 1}, [artifact])


def test_an_expired_task_has_no_result(service: TaskService, store: Store, clock: FakeClock) -> None:
    task_id = service.submit("add", {"a": 1}, ttl_s=1).task_id
    clock.advance(1)
    store.expire()
    with pytest.raises(TaskNotFound):
        service.result(task_id)


def test_a_task_that_ended_badly_is_retried_cancelled_and_deleted(
    service: TaskService, worker: Worker
) -> None:
    task_id = service.submit("add", {"a": 1}).task_id
    worker.finish(task_id, Failed(TaskError("tool_error", "It broke.")))
    retried = service.retry(task_id)
    assert (retried.task.state, retried.position) == (State.QUEUED, 1)
    with pytest.raises(NotAllowedNow) as unfinished:
        service.delete(task_id)
    assert unfinished.value.code == "not_allowed_now"
    assert service.cancel(task_id, reason="enough").task.cancel_reason == "enough"
    assert service.cancel(task_id).task.cancel_reason == "enough"
    service.delete(task_id)
    with pytest.raises(TaskNotFound):
        service.status(task_id)


def test_a_deleted_task_leaves_no_files(
    store: Store, tools: Registry, worker: Worker, tmp_path: Path
) -> None:
    service = TaskService(store, tools, Settings(), remove_files=OwnFolder(tmp_path).remove)
    task_id = service.submit("add", {"a": 1}).task_id
    worker.finish(task_id, Succeeded("3"))
    (tmp_path / task_id / "artifacts").mkdir(parents=True)
    service.delete(task_id)
    assert not (tmp_path / task_id).exists()
    service.close()
