"""A store is shared with processes of an earlier release: each reads the tasks of the other right."""

import contextlib
import json
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backburner.reports import Logged, Started, Succeeded
from backburner.stores import open_store
from backburner.task import Answer, Caller, LogLine
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


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    found: str = request.getfixturevalue("postgres_database")
    return found


def all_rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What a statement gives, by the bare driver."""
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(url) as remote:
        return remote.execute(statement.encode()).fetchall()


def execute(url: str, statement: str) -> Any:
    """The first value that a statement gives."""
    found = all_rows(url, statement)
    return found[0][0] if found else None


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


def test_lines_that_an_earlier_release_kept_as_rows_are_read_and_followed_and_packed(url: str) -> None:
    lines = [LogLine(n, n, "stdout", "info", f"line {n}") for n in range(1, 701)]
    store = open_store(url, clock=CLOCK)
    try:
        task_id = store.submit(new_task(CLOCK)).task.task_id
        (lease,) = store.claim(["cpu_standard"], ["w1"])
        values = (
            f"('{task_id}', {line.seq}, {line.ts}, 'stdout', 'info', '{line.message}')"
            for line in lines[:600]
        )
        execute(
            url,
            "INSERT INTO task_logs (task_id, seq, ts, stream, level, line)"
            f" VALUES {', '.join(values)} RETURNING seq",
        )
        assert store.logs(task_id, limit=1000) == lines[:600]
        store.report(lease, Started(), Logged(tuple(lines[600:650])))
        assert store.logs(task_id, limit=1000) == lines[:650]
        store.report(lease, Logged(tuple(lines[650:])), Succeeded("1"))
        assert store.logs(task_id, limit=1000) == lines
        CLOCK.advance(1)
        assert store.pack_logs(finished_before=CLOCK.now_ms()) == [task_id]
        assert execute(url, "SELECT count(*) FROM task_logs") == 0
        assert store.logs(task_id, limit=1000) == lines
    finally:
        store.close()


def test_an_earlier_release_reads_the_lines_of_this_one(url: str) -> None:
    lines = [LogLine(n, n, "stderr", "error", f"\u00e9\u2028 {n}\n") for n in range(1, 701)]
    store = open_store(url, clock=CLOCK)
    try:
        store.submit(new_task(CLOCK))
        (lease,) = store.claim(["cpu_standard"], ["w1"])
        for start in range(0, 700, 100):
            store.report(lease, Logged(tuple(lines[start : start + 100])))
    finally:
        store.close()
    (chunk,) = all_rows(url, "SELECT data FROM task_log_chunks ORDER BY first_seq")
    texts = zlib.decompress(bytes(chunk[0])).splitlines()
    rest = all_rows(url, "SELECT seq, ts, stream, level, line FROM task_logs ORDER BY seq")
    assert [LogLine(*json.loads(text)) for text in texts] + [LogLine(*row) for row in rest] == lines
