"""What a verb costs with a million finished tasks in the store, beside one that holds a single page.

Both stores are measured in turns, so that whatever else the machine does, it does to both.
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from backburner.core.reports import Started, Succeeded
from backburner.service.tasks import TaskService
from backburner.settings import Queue, Settings
from backburner.store import open_store
from backburner.tools.spec import Registry, ToolSpec

from .report import Results
from .targets import GROWTH, STORE

FINISHED = int(os.environ.get("BENCHMARK_FINISHED", "1_000_000"))
QUEUED = int(os.environ.get("BENCHMARK_QUEUED", "10_000"))
PAGE = 50
ROUNDS = 150
LIMIT = 2.0

QUEUE = "cpu_standard"

#: Tasks as they are after a while: one in fifty failed, each with its attempt, a line of its trail and a tag.
#: `{finished}` and `{queued}` are tables of numbers in a column `n`; `{task_id}` makes an id of one.
FILL = [
    """INSERT INTO tasks (
           task_id, owner, tool_name, target, inputs_json, inputs_hash, inputs_bytes, queue, priority, share,
           tags_json, resources_json, retry_json, extra_json, submitted_at, updated_at, started_at,
           completed_at, expires_at, state, attempt, max_attempts, worker_id, result_json)
       SELECT {task_id}, 'local', CASE n % 4 WHEN 0 THEN 'rare' ELSE 'common' END, '', '{"n": 1}', 'hash', 8,
           '{queue}', 0, '', '["project:x"]', '{}', '{"max_attempts": 1, "on": []}', '{}',
           1700000000000 + n, 1700000000000 + n, 1700000000000 + n, 1700000000000 + n, 1900000000000 + n,
           CASE n % 50 WHEN 0 THEN 'failed' ELSE 'succeeded' END, 1, 1, 'worker', '{"energy": -1.5}'
       FROM {finished}""",
    """INSERT INTO tasks (
           task_id, owner, tool_name, target, inputs_json, inputs_hash, inputs_bytes, queue, priority, share,
           tags_json, resources_json, retry_json, extra_json, submitted_at, updated_at, expires_at, state,
           max_attempts)
       SELECT {task_id}, 'local', 'common', '', '{"n": 1}', 'hash', 8, '{queue}', 0, '', '[]', '{}',
           '{"max_attempts": 1, "on": []}', '{}', 1700000000000 + n, 1700000000000 + n, 1900000000000 + n,
           'queued', 1
       FROM {queued}""",
    """INSERT INTO attempts (
           task_id, attempt, worker_id, claimed_at, heartbeat_at, updated_at, ended_at, outcome)
       SELECT task_id, 1, 'worker', submitted_at, submitted_at, submitted_at, submitted_at, 'succeeded'
       FROM tasks WHERE completed_at IS NOT NULL""",
    """INSERT INTO task_events (task_id, seq, ts, attempt, signal, to_state)
       SELECT task_id, 1, submitted_at, 0, 'submit', 'queued' FROM tasks""",
    """INSERT INTO task_tags (owner, tag, seq)
       SELECT owner, 'project:x', seq FROM tasks WHERE completed_at IS NOT NULL""",
]


def main() -> Results:
    console, growths = Console(), []
    for name, small_url, large_url in stores():
        with Side(small_url, PAGE, 0) as small, Side(large_url, FINISHED, QUEUED) as large:
            found = measure(small, large)
        growths += [large_us / small_us for small_us, large_us in found.values()]
        console.print(report(name, found))
    return Results({STORE: {GROWTH: max(growths)}})


def stores() -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder:
        yield "SQLite", f"sqlite:///{folder}/small.db", f"sqlite:///{folder}/large.db"
    with postgres() as url:
        if url is not None:
            yield "PostgreSQL", database(url), database(url)


@dataclass
class Side:
    """One store of the comparison, filled."""

    url: str
    finished: int
    queued: int

    def __enter__(self) -> Side:
        self.store = open_store(self.url)
        fill(self.url, self.finished, self.queued)
        tools = Registry()
        for name in ("common", "rare"):
            tools.add(ToolSpec(name, lambda inputs, context: None))
        settings = Settings(store=self.url, queues={QUEUE: Queue(max_length=10 * QUEUED)})
        self.service = TaskService(self.store, tools, settings)
        self.chance = random.Random(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.service.close()
        self.store.close()

    # -- what is measured

    def submit(self) -> None:
        self.last = self.service.submit("common", {"n": 1}, tags=["project:x"]).task_id

    def claim(self) -> None:
        (self.lease,) = self.store.claim([QUEUE], ["worker"])

    def finish(self) -> None:
        self.store.report(self.lease, Started(), Succeeded("1"))

    def status(self) -> None:
        self.service.status(task_id(self.chance.randrange(1, self.finished + 1)))

    def status_of_a_queued_task(self) -> None:
        self.service.status(self.last)

    def list(self, **filters: Any) -> None:
        self.service.list(limit=PAGE // 2, **filters)

    def list_the_next_page(self) -> None:
        first = self.service.list(limit=PAGE // 2 - 1)
        self.service.list(limit=PAGE // 2, cursor=first.next_cursor)


MEASURED: dict[str, Callable[[Side], None]] = {
    "submit": Side.submit,
    "status, queued": Side.status_of_a_queued_task,
    "claim": Side.claim,
    "finish": Side.finish,
    "status, finished": Side.status,
    "list": Side.list,
    "list, next page": Side.list_the_next_page,
    "list, everyone's": lambda side: side.list(owner=None),
    "list, of a state": lambda side: side.list(states=["succeeded"]),
    "list, of a state, everyone's": lambda side: side.list(states=["succeeded"], owner=None),
    "list, by tool": lambda side: side.list(tool_name="common"),
    "list, by tag": lambda side: side.list(tags_any=["project:x"]),
}


def report(name: str, found: dict[str, tuple[float, float]]) -> Table:
    title = f"{name}: {FINISHED:,} finished and {QUEUED:,} queued tasks, beside one page of {PAGE}"
    table = Table("median, µs", "one page", "filled", "ratio", title=title)
    for index in range(1, 4):
        table.columns[index].justify = "right"
    for what, median in found.items():
        ratio = median[1] / median[0]
        colour = "green" if ratio <= LIMIT else "red"
        table.add_row(what, f"{median[0]:,.0f}", f"{median[1]:,.0f}", f"[{colour}]{ratio:.2f}×[/]")
    return table


def measure(small: Side, large: Side) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in MEASURED}
    for number in range(ROUNDS + 10):
        for what, verb in MEASURED.items():
            sides = list(zip((small, large), found[what], strict=True))
            for side, times in sides if number % 2 else reversed(sides):
                before = time.perf_counter()
                verb(side)
                if number >= 10:  # the first rounds warm up
                    times.append((time.perf_counter() - before) * 1e6)
    return {what: (statistics.median(a), statistics.median(b)) for what, (a, b) in found.items()}


# -- filling a store -------------------------------------------------------------------------------


def task_id(n: int) -> str:
    """As ids are: they sort by age, and the rest is chance."""
    return f"tsk_{n:010d}{n * 2654435761 % 2**32:026d}"


def fill(url: str, finished: int, queued: int) -> None:
    if url.startswith("sqlite:"):
        _fill_sqlite(Path(url.removeprefix("sqlite:///")), finished, queued)
    else:
        _fill_postgres(url, finished, queued)


def _statements(numbers: str, task_id: str, finished: int, queued: int) -> Iterator[str]:
    for statement in FILL:
        for hole, value in {
            "{finished}": numbers.format(first=1, last=finished),
            "{queued}": numbers.format(first=finished + 1, last=finished + queued),
            "{task_id}": task_id,
            "{queue}": QUEUE,
        }.items():
            statement = statement.replace(hole, value)
        yield statement


def _fill_sqlite(path: Path, finished: int, queued: int) -> None:
    numbers = """(WITH RECURSIVE counter (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM counter)
                  SELECT n FROM counter LIMIT {last} + 1 - {first})"""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = -500000")
    connection.execute("BEGIN")
    task_id = "printf('tsk_%010d%026d', n, n * 2654435761 % 4294967296)"
    for statement in _statements(numbers, task_id, finished, queued):
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _fill_postgres(url: str, finished: int, queued: int) -> None:
    import psycopg

    task_id = "format('tsk_%s%s', lpad(n::text, 10, '0'), lpad((n * 2654435761 % 4294967296)::text, 26, '0'))"
    numbers = "generate_series({first}::bigint, {last}::bigint) AS n"
    with psycopg.connect(url) as connection:
        for statement in _statements(numbers, task_id, finished, queued):
            connection.execute(statement.encode())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


# -- PostgreSQL, where there is one ------------------------------------------------------------------


@contextmanager
def postgres() -> Iterator[str | None]:
    if given := os.environ.get("BACKBURNER_TEST_POSTGRES_URL"):
        yield given
        return
    if not any(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        yield None
        return
    from tests.services import PostgresServer

    server = PostgresServer()
    try:
        server.start()
        yield server.url
    finally:
        server.close()


def database(url: str) -> str:
    """A new, empty database on that server."""
    import psycopg

    name = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return urlsplit(url)._replace(path=f"/{name}").geturl()
