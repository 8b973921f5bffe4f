"""Tools that fork, and tools that write to their supervisor's channel: nobody else's task is touched."""

import base64
import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql

from backburner.core.lifecycle import State
from backburner.core.task import Task, TaskError
from backburner.tools.context import MAX_CHECKPOINT_BYTES
from tests.integration.engine.local import Local, running
from tests.integration.engine.misbehaving_tools import misbehaving_app

pytestmark = pytest.mark.slow

StartMisbehaving = Callable[..., Local]
#: Less than a lease lasts: so nobody waited for its end.
SOON_MS = 10_000
ONE_WORKER = {"queue": "one_by_one"}


@pytest.fixture
def start(tmp_path: Path, run_directory: str) -> Iterator[StartMisbehaving]:
    with contextlib.ExitStack() as stack:

        def start(**settings: Any) -> Local:
            given = {"store": f"sqlite:///{tmp_path}/tasks.db", **settings}
            return stack.enter_context(running(misbehaving_app(**given)))

        yield start


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, run_directory: str) -> Iterator[Local]:
    """For all tests of this file that need nothing special: none may spoil it for the others."""
    store = f"sqlite:///{tmp_path_factory.mktemp('misbehaviour')}/tasks.db"
    with running(misbehaving_app(store=store), shared=True) as started:
        yield started


def encoded(*lines: bytes) -> str:
    return base64.b64encode(b"".join(line + b"\n" for line in lines)).decode()


def error_of(task: Task) -> TaskError:
    assert task.state is State.FAILED, task
    assert task.error is not None
    return task.error


# -- forks


@pytest.mark.parametrize(
    ("tool", "inputs"),
    [
        ("fork_and_return", {}),
        ("fork_and_return", {"raw": True}),
        ("fork_in_a_coroutine", {}),
        ("fork_and_leave_behind", {}),
    ],
)
def test_a_forked_child_gives_no_result_to_anybody(local: Local, tool: str, inputs: dict[str, Any]) -> None:
    one = local.submit(tool, {**ONE_WORKER, "owner": "one"}, name="one", **inputs)
    two = local.submit("who", {**ONE_WORKER, "owner": "two"}, name="two")
    three = local.submit("who", {**ONE_WORKER, "owner": "one"}, name="three")
    assert [local.end(task_id).result for task_id in (one, two, three)] == ["one", "two", "three"]


@pytest.mark.parametrize(("how", "code"), [("ok", 0), ("code", 7), ("words", 1), ("raise", 1)])
def test_a_forked_child_ends_as_a_process_does_and_its_parent_goes_on(
    local: Local, how: str, code: int
) -> None:
    task = local.run("fork_and_end", how=how)
    assert task.result == code
    if how == "raise":
        assert "RuntimeError: the child of a tool" in local.lines(task.task_id)


def test_a_forked_child_is_told_that_it_cannot_speak_for_the_task(local: Local) -> None:
    task = local.run("fork_and_use_the_context")
    code, said = task.result
    assert code == 0
    assert "another process" in said
    assert task.progress is None or task.progress.percent != 99


# -- what is said past the context

JUNK = [
    b"5",
    b'"ab"',
    b'["done", {}]',
    b"[" * 1000,
    b"[" * 100_000,
    b"null",
    b"{}",
    b"not json",
    b"\xff\xfe",
    b'["done"]',
    b'["done", {}, {}]',
    b'[5, {"task_id": "x", "attempt": 1}]',
    b'["hello", {}]',
    b'["dance", {"task_id": "TASK", "attempt": 1}]',
    b'["done", {"task_id": "TASK", "attempt": 1}]',
    b'["done", {"task_id": "TASK", "attempt": "1", "kind": "succeeded", "result_json": "1"}]',
    b'["progress", {"task_id": "TASK", "attempt": 1, "percent": "x"}]',
    b'["progress", {"task_id": "TASK", "attempt": 1, "percent": NaN}]',
    b'["ask", {"task_id": "TASK", "attempt": 1, "number": 1, "requests": 7}]',
    b'["checkpoint", {"task_id": "TASK", "attempt": 1, "number": 1, "data_json": "{"}]',
    b'["checkpoint", {"task_id": "TASK", "attempt": 1, "number": [], "data_json": "1"}]',
]


@pytest.mark.whole(but_first=8)
@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk[:60]))
def test_junk_on_a_runner_s_channel_ends_that_runner_only(local: Local, junk: bytes) -> None:
    supervisor = local.supervisor()
    others = local.submit("hold", {"owner": "two"}, seconds=0.5)
    local.until_state(others, State.RUNNING)
    task = local.run("speak", {**ONE_WORKER, "owner": "one"}, data=encoded(junk))
    assert error_of(task).type == "runner_misbehaved"
    assert local.run("who", {**ONE_WORKER, "owner": "two"}, name="two").result == "two"
    assert local.end(others).result == "held"
    assert local.store.attempts(others)[-1].attempt == 1
    assert local.supervisor() == supervisor


def test_a_line_that_never_ends_is_not_collected_for_ever(local: Local) -> None:
    part = base64.b64encode(b"x" * 500_000).decode()
    task = local.run("speak", ONE_WORKER, data=part, times=1000)
    assert error_of(task).type == "runner_misbehaved"
    assert "bytes" in error_of(task).message


def test_a_child_that_speaks_on_its_parent_s_channel_is_not_heard(local: Local) -> None:
    last_word = {"kind": "succeeded", "result_json": '"stolen"', "metrics": {}, "changed": False}
    message = json.dumps(["done", {"task_id": "TASK", "attempt": 1, **last_word}]).encode()
    task = local.run("speak", ONE_WORKER, data=encoded(message), by_child=True)
    assert error_of(task).type == "runner_misbehaved"
    assert "another process" in error_of(task).message


def test_a_runner_cannot_speak_for_another_task(local: Local) -> None:
    victim = local.submit("hold", {"owner": "two"}, seconds=0.5)
    local.until_state(victim, State.RUNNING)
    task = local.run("speak_for", {"owner": "one"}, task_id=victim, attempt=1)
    assert error_of(task).type == "runner_misbehaved"
    assert local.end(victim).result == "held"


# -- what no store can keep


@pytest.mark.whole(but_first=5)
@pytest.mark.parametrize(
    "changes",
    [
        {"kind": None},
        {"name": None},
        {"name": ""},
        {"size_bytes": 10**30},
        {"size_bytes": -1},
        {"created_at": 10**30},
        {"sha256": "x"},
        {"path": "../../../etc/passwd"},
        {"path": "/etc/passwd"},
        {"path": "another/artifacts/art_00000000000000000000000000000000/a.txt"},
        {"artifact_id": "../a"},
        {"name": "NUL"},
        {"name": "SURROGATE"},
        {"more": 1},
    ],
    ids=str,
)
def test_an_artifact_that_cannot_be_kept_ends_its_own_attempt_only(
    local: Local, changes: dict[str, Any]
) -> None:
    others = local.submit("hold", {"owner": "two"}, seconds=0.5)
    task = local.run("keep_as", {**ONE_WORKER, "owner": "one"}, changes=changes)
    assert error_of(task).type == "runner_misbehaved"
    assert local.end(others).result == "held"


@pytest.mark.parametrize(("name", "kind"), [("a", None), ("a", 5), ("a", ""), (5, "file"), ("NUL", "file")])
def test_an_artifact_of_no_kind_is_the_tool_s_own_error(local: Local, name: Any, kind: Any) -> None:
    error = error_of(local.run("keep", name=name, kind=kind))
    assert (error.type, error.exception) in {
        ("tool_error", "invalid_request"),
        ("tool_error", "invalid_json"),
    }


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    url: str = request.getfixturevalue("postgres_database")
    return url


def refuse_artifacts(store_url: str, name: str) -> None:
    """Have the database itself refuse artifacts of that name."""
    if store_url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as connection:
            connection.execute(
                f"CREATE TRIGGER refuse BEFORE INSERT ON artifacts WHEN NEW.name = '{name}'"
                " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            )
    else:
        with psycopg.connect(store_url, autocommit=True) as connection:
            check = sql.SQL("ALTER TABLE artifacts ADD CONSTRAINT refuse CHECK (name <> {})")
            connection.execute(check.format(name))


@pytest.mark.whole(but_first=1)
def test_what_the_store_refuses_fails_its_own_attempt_and_nothing_else(
    store_url: str, start: StartMisbehaving
) -> None:
    local = start(store=store_url)
    refuse_artifacts(store_url, "refused")
    supervisor = local.supervisor()
    others = local.submit("hold", {"owner": "two"}, seconds=1.0)
    local.until_state(others, State.RUNNING)
    task = local.run("keep", {**ONE_WORKER, "owner": "one"}, name="refused", kind="file")
    assert error_of(task).type == "store_refused"
    assert "refuse" in error_of(task).message or "not this one" in error_of(task).message
    assert (
        local.run("keep", {**ONE_WORKER, "owner": "one"}, name="taken", kind="file").state is State.SUCCEEDED
    )
    assert local.end(others).result == "held"
    assert local.supervisor() == supervisor


# -- what is too deep or too large


@pytest.mark.parametrize("levels", [150, 900, 5000])
@pytest.mark.parametrize("where", ["progress", "checkpoint", "question", "result"])
def test_what_is_nested_too_deeply_is_no_more_than_the_tool_s_own_error(
    local: Local, where: str, levels: int
) -> None:
    supervisor = local.supervisor()
    task = local.run("go_deep", levels=levels, where=where)
    if where == "progress":
        assert task.result == "done"
        assert task.progress is not None
        assert task.progress.message == "half"
        assert task.progress.context == {}
    else:
        assert "nested" in error_of(task).message
    assert local.supervisor() == supervisor


def test_a_checkpoint_has_a_limit_and_one_below_it_is_kept(start: StartMisbehaving) -> None:
    local = start()
    assert local.run("checkpoint_of", size=MAX_CHECKPOINT_BYTES - 100_000).result == "kept"
    error = error_of(local.run("checkpoint_of", size=MAX_CHECKPOINT_BYTES))
    assert error.exception == "too_large"


def test_an_error_of_any_length_is_shortened_and_not_lost(local: Local) -> None:
    error = error_of(local.run("fail_at_length", size=50_000_000))
    assert error.exception == "RuntimeError"
    assert len(error.message) < 100_000
    assert "xxx" in error.message


def test_a_supervisor_that_ends_by_an_error_of_its_own_is_followed_at_once(start: StartMisbehaving) -> None:
    """Its orderly end must not take away what the next one needs to find its tasks."""
    local = start()
    held = local.submit("hold", seconds=5.0)
    local.until_state(held, State.RUNNING)
    supervisor = local.supervisor()
    supervisor.rlimit(psutil.RLIMIT_NOFILE, (supervisor.num_fds(), 4096))  # it cannot make another runner
    local.submit("who", ONE_WORKER, name="one")
    local.until(held, lambda task: task.attempt == 2)
    began, lost = (next(e for e in local.events(held) if e.signal == signal) for signal in ("start", "retry"))
    assert lost.ts - began.ts < SOON_MS
    assert local.end(held).result == "held"
