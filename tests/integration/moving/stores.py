"""Stores to be moved: what is in them by the bare drivers, and the command that moves them."""

import contextlib
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from typer.testing import CliRunner

from backburner.cli import app
from backburner.errors import BackburnerError
from backburner.store import open_store
from tests import warm
from tests.deployment import foreign_environment

COMMAND = [warm.BACKBURNER, "migrate"]
#: What processes say of themselves, and what is counted and numbered.
NOT_COPIED = {"workers", "keeper", "queue_depth", "event_order"}


def begin(source: str, to: str, *words: str) -> subprocess.Popen[str]:
    """Begin to move a store."""
    return subprocess.Popen(
        [*COMMAND, "--store", source, "--to", to, *words],
        env=foreign_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def move(source: str, to: str, *words: str, code: int = 0) -> str:
    """Move a store; what was said."""
    process = begin(source, to, *words)
    out, said = process.communicate(timeout=110)
    assert process.returncode == code, said
    return out + said


def refusal(source: str, to: str) -> BackburnerError:
    """What a move that is refused is told, without a process for it."""
    error = CliRunner().invoke(app, ["migrate", "--store", source, "--to", to]).exception
    assert isinstance(error, BackburnerError), error
    return error


def tables(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return sorted({name for (name,) in found} - NOT_COPIED)


def rows(url: str, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """All rows of a table, in an order of their own."""
    statement = f"SELECT {columns} FROM {table}"
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return sorted(connection.execute(statement).fetchall(), key=repr)
    with psycopg.connect(url) as remote:
        return sorted(remote.execute(statement.encode()).fetchall(), key=repr)


def columns(path: Path, table: str) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))


def contents(path: Path, url: str) -> dict[str, list[tuple[Any, ...]]]:
    """What the store at `url` has in the tables and columns of the SQLite file."""
    return {table: rows(url, table, columns(path, table)) for table in tables(path)}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def execute(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def make_many(path: Path, count: int) -> None:
    """A store with so many tasks, each with an attempt, three events and a line of its log; some wait."""
    open_store(f"sqlite:///{path}").close()
    numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    state = "CASE WHEN i % 10 = 0 THEN 'queued' ELSE 'succeeded' END"
    execute(
        path,
        f"""{numbers} INSERT INTO tasks (task_id, owner, tool_name, target, inputs_json, inputs_hash,
            inputs_bytes, queue, priority, share, tags_json, resources_json, retry_json, extra_json, hint_s,
            submitted_at, updated_at, state, max_attempts, result_json, completed_at)
        SELECT 'tsk_' || printf('%036d', i), 'owner ' || i % 7, 'add', 'module:lab#bb',
            '{{"a": ' || i || '}}', hex(i), 8, 'cpu_standard', i % 3, '', '[]', '{{}}',
            '{{"max_attempts": 3, "on": []}}', '{{"isolation": "warm"}}', i / 7.0,
            1700000000000 + i, 1700000000000 + i, {state}, 3, '{{"sum": "über ' || i || '"}}',
            CASE WHEN i % 10 = 0 THEN NULL ELSE 1700000000000 + i END FROM n""",
        """INSERT INTO attempts (task_id, attempt, worker_id, claimed_at, heartbeat_at, updated_at, outcome)
        SELECT task_id, 1, 'w', submitted_at, submitted_at, submitted_at, 'succeeded' FROM tasks""",
        """INSERT INTO task_events (task_id, seq, ts, attempt, signal, to_state)
        SELECT task_id, s.value, submitted_at, 1, 'submit', 'queued' FROM tasks, json_each('[1, 2, 3]') s""",
        """INSERT INTO task_logs (task_id, seq, ts, stream, level, line)
        SELECT task_id, 1, submitted_at, 'stdout', 'info', 'line of ' || task_id FROM tasks""",
    )
