"""A store is shared with processes of an earlier release: each reads the tasks of the other right."""

import json
import sqlite3
from pathlib import Path

import psycopg
import pytest

from backburner.stores import open_store
from backburner.task import Answer, Caller
from backburner.testing import FakeClock
from backburner.testing.store.base import new_task

CLOCK = FakeClock()

#: What the earlier release wrote into `meta_json`, and still looks for there.
EARLIER = {
    "isolation": "fresh",
    "result": "mcp",
    "answers": {"colour": {"action": "accept", "content": {"name": "red"}}},
    "caller": {"client_id": "shop", "issuer": None, "subject": "ann", "scopes": ["read"]},
    "ticket": 7,
}
FIELDS = {
    "isolation": "fresh",
    "result_kind": "call_tool_result",
    "answers": {"colour": Answer("accept", {"name": "red"})},
    "caller": Caller("shop", None, "ann", ("read",)),
    "meta": {"ticket": 7},
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    found: str = request.getfixturevalue("postgres_database")
    return found


def execute(url: str, statement: str) -> str | None:
    """The first value that a statement gives, by the bare driver."""
    if url.startswith("sqlite:"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        with connection:
            row = connection.execute(statement).fetchone()
        connection.close()
    else:
        with psycopg.connect(url) as remote:
            row = remote.execute(statement.encode()).fetchone()
    return None if row is None else row[0]


def test_a_task_of_an_earlier_release_is_read_with_all_its_fields(url: str) -> None:
    store = open_store(url, clock=CLOCK)
    try:
        task_id = store.submit(new_task(CLOCK)).task.task_id
        execute(url, f"UPDATE tasks SET meta_json = '{json.dumps(EARLIER)}' RETURNING seq")
        task = store.get(task_id)
        assert {name: getattr(task, name) for name in FIELDS} == FIELDS
        execute(url, "UPDATE tasks SET meta_json = '{}' RETURNING seq")
        plain = store.get(task_id)
        assert (plain.isolation, plain.result_kind, plain.answers, plain.caller, plain.meta) == (
            "warm",
            "value",
            {},
            None,
            {},
        )
    finally:
        store.close()


@pytest.mark.parametrize("own", [{"caller": "billing"}, {"caller": {}}, {"answers": [1]}, {"own": 1}])
def test_keys_that_a_caller_of_an_earlier_release_used_for_itself_are_its_own(
    tmp_path: Path, own: dict[str, object]
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    store = open_store(url, clock=CLOCK)
    try:
        task_id = store.submit(new_task(CLOCK)).task.task_id
        execute(url, f"UPDATE tasks SET meta_json = '{json.dumps(own)}' RETURNING seq")
        assert store.get(task_id).meta == own
    finally:
        store.close()


def test_an_earlier_release_finds_what_it_looks_for_in_a_task(url: str) -> None:
    store = open_store(url, clock=CLOCK)
    try:
        store.submit(new_task(CLOCK, **FIELDS))
    finally:
        store.close()
    assert json.loads(execute(url, "SELECT meta_json FROM tasks") or "") == EARLIER
