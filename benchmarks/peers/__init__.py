"""Backburner beside what users would pick instead: all in one run, on one machine, in the same shapes.

One submitter submits tasks that do nothing and then reads every result; the same with 16; and one task after
another with gaps of up to 30 ms. Each peer is started for real, in a virtual environment of its own. Set
BENCHMARK_TASKS to another number of tasks than 2000.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from rich.console import Console
from rich.table import Table

from tests.interop.environment import Unavailable, python
from tests.services import PostgresServer, RedisServer

from .contenders.shapes import RUN, SERVICES, marked

CONTENDERS = Path(__file__).parent / "contenders"
LONGEST_S = 300
FIGURES = (
    "tasks/s",
    "tasks/s, 16",
    "dispatch p50 ms",
    "dispatch p99 ms",
    "submit p50 ms",
    "CPU ms a task",
)


@dataclass(frozen=True)
class Entry:
    """A row: a program of `contenders`, the environment that it runs in (or ours), and what it works on."""

    title: str
    program: str
    environment: str = ""
    on: str = "file"


ENTRIES = (
    Entry("bare commits", "bare_commits"),
    Entry("Backburner SQLite", "backburner_tasks", on="sqlite"),
    Entry("Huey SQLite, fsync", "huey_tasks", "huey"),
    Entry("Huey Redis", "huey_tasks", "huey", on="redis"),
    Entry("Dramatiq Redis", "dramatiq_tasks", "dramatiq", on="redis"),
    Entry("Celery Redis", "celery_tasks", "celery", on="redis"),
    Entry("docket Redis", "docket_tasks", "docket", on="redis"),
    Entry("Backburner PostgreSQL", "backburner_tasks", on="postgresql"),
    Entry("PgQueuer", "pgqueuer_tasks", "pgqueuer", on="postgresql"),
    Entry("process pool", "process_pool"),
)

#: Whose figures are set against whose.
COMPARED = (
    ("Backburner SQLite", "bare commits"),
    ("Backburner SQLite", "Huey SQLite, fsync"),
    ("Backburner SQLite", "process pool"),
    ("Backburner PostgreSQL", "PgQueuer"),
)

Figures = dict[str, float]


@dataclass(frozen=True)
class Service:
    """A service that contenders work on; each gets a place of its own there."""

    server: RedisServer | PostgresServer

    def place(self, number: int) -> str:
        if isinstance(self.server, PostgresServer):
            with psycopg.connect(self.server.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE contender_{number}")
            return self.server.url.rpartition("/")[0] + f"/contender_{number}"
        return f"{self.server.url}/{number}"


def main() -> None:
    tasks = int(os.environ.get("BENCHMARK_TASKS", "2000"))
    found: dict[str, Figures] = {}
    with services() as there, tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder:
        for number, entry in enumerate(ENTRIES):
            try:
                found[entry.title] = run(entry, _place(entry, number, there, folder), tasks, there)
            except (Unavailable, subprocess.SubprocessError) as error:
                print(f"{entry.title} is left out: {error}", file=sys.stderr)
    console = Console(width=110)
    console.print(as_table(found))
    console.print(compared(found))


@contextmanager
def services() -> Iterator[dict[str, Service]]:
    """The services that can be had here; the others are named."""
    with ExitStack() as stack:
        there = {}
        for name, kind in (("redis", RedisServer), ("postgresql", PostgresServer)):
            try:
                server = kind()
                stack.callback(server.close)
                server.start()
                there[name] = Service(server)
            except (pytest.skip.Exception, pytest.fail.Exception) as error:
                print(f"{name} is not there: {error}", file=sys.stderr)
        yield there


def _place(entry: Entry, number: int, there: dict[str, Service], folder: str) -> str:
    """What an entry works on. Raises Unavailable."""
    if entry.on in ("file", "sqlite"):
        return f"{'sqlite:///' if entry.on == 'sqlite' else ''}{folder}/{number}.db"
    if entry.on not in there:
        raise Unavailable(f"{entry.on} is not there")
    return there[entry.on].place(number)


def run(entry: Entry, place: str, tasks: int, there: dict[str, Service]) -> Figures:
    """Raises Unavailable and SubprocessError."""
    interpreter = str(python(entry.environment)) if entry.environment else sys.executable
    service = [str(there[entry.on].server.pid)] if entry.on in there else []
    own = {RUN: secrets.token_hex(8), SERVICES: " ".join(service), "PYTHONPATH": str(CONTENDERS)}
    print(f"{entry.title} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryFile("w+") as said, ended_afterwards(own[RUN]):
        try:
            program = subprocess.run(
                [interpreter, str(CONTENDERS / f"{entry.program}.py"), place, str(tasks)],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                check=True,
                timeout=LONGEST_S,
                env={**os.environ, **own},
            )
        except subprocess.CalledProcessError as error:
            said.seek(0)
            raise Unavailable(said.read()[-2000:]) from error
    figures: Figures = json.loads(program.stdout.splitlines()[-1])
    return figures


@contextmanager
def ended_afterwards(mark: str) -> Iterator[None]:
    """Whatever a contender has started goes with it, also what is meant to outlive it."""
    try:
        yield
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def as_table(found: dict[str, Figures]) -> Table:
    table = Table("", *FIGURES, title="Tasks that do nothing, two workers, in one run")
    for title, figures in found.items():
        table.add_row(title, *(_short(figures[name]) for name in FIGURES))
    return table


def compared(found: dict[str, Figures]) -> Table:
    table = Table("", *FIGURES, title="As ratios")
    for one, other in COMPARED:
        if one in found and other in found:
            ratios = (f"{found[one][name] / found[other][name]:.2f}" for name in FIGURES)
            table.add_row(f"{one} / {other}", *ratios)
    return table


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"
