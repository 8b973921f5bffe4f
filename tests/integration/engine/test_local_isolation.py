"""What a task leaves in its process does not reach the next one; nothing at all reaches another owner's."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from backburner import Backburner
from backburner.core.lifecycle import State
from backburner.core.task import Task
from tests.integration.engine import carrying_app
from tests.integration.engine.carrying_app import RESET, SPENT, SPENT_BY_ROOT
from tests.integration.engine.local import Local, running

ONE_BY_ONE: dict[str, Any] = {"queue": "one_by_one"}


#: Tasks that do what libraries do all the time.
KEEPING: list[tuple[str, dict[str, Any]]] = [
    *(("use", {"what": what}) for what in carrying_app.USES),
    *(("use", {"what": what}) for what in carrying_app.USES),
]


def app_with(store: str, **settings: Any) -> Backburner:
    app = Backburner("carrying", store=store, queues={"one_by_one": 1}, **settings)
    app.target = carrying_app.bb.target
    for spec in carrying_app.bb.tools:
        app.add_tool(spec)
    return app


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, run_directory: str) -> Iterator[Local]:
    """One worker, for all tests of this file."""
    store = f"sqlite:///{tmp_path_factory.mktemp('isolation')}/tasks.db"
    with running(app_with(store), shared=True) as started:
        yield started


def result(local: Local, tool: str, /, owner: str = "alice", **inputs: Any) -> Any:
    return succeeded(local.run_as(owner, tool, ONE_BY_ONE, **inputs)).result


def succeeded(task: Task) -> Task:
    assert task.state is State.SUCCEEDED, task.error
    return task


@pytest.mark.parametrize("what", RESET)
def test_the_next_task_sees_nothing_of_what_a_task_changed(local: Local, what: str) -> None:
    _, before = result(local, "look", what=what)
    result(local, "change", what=what)
    assert result(local, "look", what=what)[1] == before


def test_a_task_that_changes_nothing_lasting_keeps_its_process(local: Local) -> None:
    pids = [result(local, tool, **inputs)[0] for tool, inputs in KEEPING]
    assert len(set(pids)) == 1


@pytest.mark.parametrize("what", [*SPENT, *SPENT_BY_ROOT])
def test_a_process_with_lasting_changes_gets_no_other_task(local: Local, what: str) -> None:
    if what in SPENT_BY_ROOT and os.geteuid() != 0:
        pytest.skip("only root can do this")
    pid = result(local, "change", what=what)
    after = succeeded(local.run_as("alice", "listen", ONE_BY_ONE))
    assert after.result != pid
    assert local.lines(after.task_id) == ["here"]


def test_a_warm_process_keeps_what_an_app_keeps_for_the_same_owner(local: Local) -> None:
    pid, words = result(local, "remember", word="first")
    assert result(local, "remember", word="second") == [pid, [*words, "second"]]


def test_no_process_serves_two_owners(local: Local) -> None:
    pids = [result(local, "remember", owner=owner, word=owner) for owner in ("anna", "berta", "anna")]
    assert len({pid for pid, _ in pids}) == 3
    assert [words for _, words in pids] == [["anna"], ["berta"], ["anna"]]


def test_owners_whose_tasks_were_leased_together_have_processes_of_their_own(local: Local) -> None:
    owners = ["carla", "dora"] * 20
    submitted = [
        (owner, local.service.submit("remember", {"word": owner}, owner=owner, **ONE_BY_ONE).task_id)
        for owner in owners
    ]
    for owner, task_id in submitted:
        task = local.service.wait(task_id, 30, owner=owner).task
        assert set(succeeded(task).result[1]) == {owner}
