"""A fresh schema equals a migrated one, and a store of a newer version is refused."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backburner.core.lifecycle import State
from backburner.errors import StoreCorrupt, StoreTooNew
from backburner.store import open_store
from backburner.store.protocol import TaskQuery
from backburner.store.sql.statements import migrations

VERSIONS = [number for number, _, _ in migrations("sqlite")]


def open_and_close(url: str) -> int:
    store = open_store(url)
    try:
        assert store.page(TaskQuery()) == []
        return store.version()
    finally:
        store.close()


def test_both_databases_have_the_same_migrations_numbered_without_gaps() -> None:
    names = [
        [(number, name) for number, name, _ in migrations(dialect)] for dialect in ("sqlite", "postgres")
    ]
    assert names[0] == names[1]
    assert list(range(1, len(VERSIONS) + 1)) == VERSIONS


# -- SQLite


def sqlite_schema(path: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
        ).fetchall()
    finally:
        connection.close()


def sqlite_at_version(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    for number, _, script in migrations("sqlite")[:version]:
        connection.executescript(f"{script}; PRAGMA user_version = {number}")
    connection.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_migrated_sqlite_schema_equals_a_fresh_one(tmp_path: Path, version: int) -> None:
    open_and_close(f"sqlite:///{tmp_path}/fresh.db")
    sqlite_at_version(tmp_path / "old.db", version)
    assert open_and_close(f"sqlite:///{tmp_path}/old.db") == VERSIONS[-1]
    assert sqlite_schema(tmp_path / "old.db") == sqlite_schema(tmp_path / "fresh.db")


NEXT = "CREATE TABLE later (id TEXT PRIMARY KEY);"


def with_one_more(monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    """Have the dialect's store know one more migration."""
    known = [*migrations(dialect), (VERSIONS[-1] + 1, "later", NEXT)]
    monkeypatch.setattr(f"backburner.store.{dialect}.migrations", lambda _: known)


def test_a_sqlite_store_gets_the_migrations_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tasks.db"
    assert open_and_close(f"sqlite:///{path}") == VERSIONS[-1]
    with_one_more(monkeypatch, "sqlite")
    assert open_and_close(f"sqlite:///{path}") == VERSIONS[-1] + 1
    assert "later" in [row[1] for row in sqlite_schema(path)]


def test_a_newer_sqlite_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    open_and_close(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSIONS[-1] + 1}")
    connection.close()
    before = sqlite_schema(path)
    with pytest.raises(StoreTooNew) as refused:
        open_store(f"sqlite:///{path}")
    assert refused.value.details["found"] == VERSIONS[-1] + 1
    assert "Upgrade Backburner" in str(refused.value)
    assert sqlite_schema(path) == before


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_the_sqlite_check_knows_exactly_the_states(tmp_path: Path) -> None:
    open_and_close(f"sqlite:///{tmp_path}/tasks.db")
    (sql,) = [row[3] for row in sqlite_schema(tmp_path / "tasks.db") if row[1] == "tasks"]
    assert states_in(sql[sql.index("CHECK (state IN") :]) == set(State)


# -- PostgreSQL


POSTGRES_CATALOG = {
    "columns": "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default,"
    " is_identity FROM information_schema.columns WHERE table_schema = 'public'",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": "SELECT proname, pg_get_functiondef(oid) FROM pg_proc"
    " WHERE pronamespace = 'public'::regnamespace",
}


def postgres_schema(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with psycopg.connect(url) as connection:
        return {
            name: sorted(connection.execute(query).fetchall(), key=str)
            for name, query in POSTGRES_CATALOG.items()
        }


def postgres_at_version(url: str, version: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE backburner_version (version BIGINT PRIMARY KEY)")
        for number, _, script in migrations("postgres")[:version]:
            connection.execute(script.encode())
            connection.execute("INSERT INTO backburner_version VALUES (%s)", (number,))


def empty(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_migrated_postgres_schema_equals_a_fresh_one(postgres_database: str, version: int) -> None:
    open_and_close(postgres_database)
    fresh = postgres_schema(postgres_database)
    assert all(fresh.values())
    empty(postgres_database)
    postgres_at_version(postgres_database, version)
    assert open_and_close(postgres_database) == VERSIONS[-1]
    assert postgres_schema(postgres_database) == fresh


def test_a_postgres_store_gets_the_migrations_that_it_lacks(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_and_close(postgres_database) == VERSIONS[-1]
    with_one_more(monkeypatch, "postgres")
    assert open_and_close(postgres_database) == VERSIONS[-1] + 1
    assert "later" in [row[0] for row in postgres_schema(postgres_database)["columns"]]


def test_a_newer_postgres_store_is_refused_and_left_as_it_is(postgres_database: str) -> None:
    open_and_close(postgres_database)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("INSERT INTO backburner_version VALUES (%s)", (VERSIONS[-1] + 1,))
    before = postgres_schema(postgres_database)
    with pytest.raises(StoreTooNew) as refused:
        open_store(postgres_database)
    assert refused.value.details["found"] == VERSIONS[-1] + 1
    assert postgres_schema(postgres_database) == before


def test_the_postgres_check_knows_exactly_the_states(postgres_database: str) -> None:
    open_and_close(postgres_database)
    checks = dict(postgres_schema(postgres_database)["constraints"])
    assert states_in(checks["tasks_state_check"]) == set(State)


def states_in(sql: str) -> set[str]:
    return set(re.findall(r"'(\w+)'", sql))
