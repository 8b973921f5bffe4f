"""Backburner beside what users would pick instead: all in one run, on one machine, in the same shapes.

One submitter submits tasks that do nothing and then reads every result; the same with 16; and one task after
another with gaps of up to 30 ms, the same for all. Each peer is started for real, in a virtual environment of
its own. All is done in rounds (BENCHMARK_ROUNDS, 3), and the best of each figure counts. BENCHMARK_TASKS
is another number of tasks than 1000, and BENCHMARK_ONLY names those that take part, with `;` between them.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.services import PostgresServer, RabbitServer, RedisServer
from tests.system.interop.environment import Unavailable, python

from ..report import Results
from ..targets import BARE, HUEY, PGQUEUER, POOL, POSTGRES, SQLITE
from .contenders.shapes import RUN, SERVICES, marked

CONTENDERS = Path(__file__).parent / "contenders"
LONGEST_S = 300


@dataclass(frozen=True)
class Entry:
    """A row: a program of `contenders`, the environment that it runs in (or ours), and what it works on."""

    title: str
    program: str
    environment: str = ""
    on: str = "file"


ENTRIES = (
    Entry(BARE, "bare_commits"),
    Entry(SQLITE, "backburner_tasks", on="sqlite"),
    Entry(HUEY, "huey_tasks", "huey"),
    Entry("Huey Redis", "huey_tasks", "huey", on="redis"),
    Entry("Dramatiq Redis", "dramatiq_tasks", "dramatiq", on="redis"),
    Entry("Celery Redis", "celery_tasks", "celery", on="redis"),
    Entry("docket Redis", "docket_tasks", "docket", on="redis"),
    Entry(POSTGRES, "backburner_tasks", on="postgresql"),
    Entry(PGQUEUER, "pgqueuer_tasks", "pgqueuer", on="postgresql"),
    Entry(POOL, "process_pool"),
)

SERVERS: dict[str, Callable[[], PostgresServer | RabbitServer | RedisServer]] = {
    "redis": RedisServer,
    "postgresql": PostgresServer,
    "rabbitmq": RabbitServer,
    "durable redis": partial(RedisServer, durable=True),
}

Figures = dict[str, float]


@dataclass(frozen=True)
class Service:
    """A service that contenders work on; each gets a place of its own there."""

    server: PostgresServer | RabbitServer | RedisServer

    def place(self, number: int) -> str:
        if isinstance(self.server, PostgresServer):
            with psycopg.connect(self.server.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE contender_{number}")
            return self.server.url.rpartition("/")[0] + f"/contender_{number}"
        if isinstance(self.server, RedisServer):
            return f"{self.server.url}/{number % 16}"
        return self.server.url


def main() -> Results:
    return in_rounds(one_round)


def in_rounds(one_round: Callable[[], Results]) -> Results:
    """The best of each figure over a few rounds, for the machine has other things to do."""
    rounds = [one_round() for _ in range(int(os.environ.get("BENCHMARK_ROUNDS", "3")))]
    results = Results()
    for each in rounds:
        results.left_out |= each.left_out
    for title in dict.fromkeys(title for each in rounds for title in each.figures):
        found = [each.figures[title] for each in rounds if title in each.figures]
        results.figures[title] = {
            name: (max if "/s" in name else min)(one[name] for one in found) for name in found[0]
        }
    return results


def one_round() -> Results:
    results = Results()
    with (
        services("redis", "postgresql") as there,
        tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder,
    ):
        for number, entry in enumerate(ENTRIES):
            if not takes_part(entry.title):
                continue
            print(f"{entry.title} …", file=sys.stderr, flush=True)
            try:
                place = _place(entry, number, there, folder)
                results.figures[entry.title] = run(entry, place, folder, there)
            except (Unavailable, subprocess.SubprocessError) as error:
                results.left_out[entry.title] = str(error)
    return results


def tasks() -> int:
    return int(os.environ.get("BENCHMARK_TASKS", "1000"))


def takes_part(title: str) -> bool:
    chosen = os.environ.get("BENCHMARK_ONLY", "")
    return not chosen or title in map(str.strip, chosen.split(";"))


@contextmanager
def services(*names: str) -> Iterator[dict[str, Service]]:
    """Those of the services that can be had here; the others are named."""
    with ExitStack() as stack:
        there = {}
        for name in names:
            try:
                server = SERVERS[name]()
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


def run(entry: Entry, place: str, folder: str, there: dict[str, Service]) -> Figures:
    """Raises Unavailable and SubprocessError."""
    interpreter = str(python(entry.environment)) if entry.environment else sys.executable
    pids = [there[entry.on].server.pid] if entry.on in there else []
    return run_program(CONTENDERS / f"{entry.program}.py", place, folder, pids, interpreter)


def run_program(
    program: Path, place: str, folder: str, pids: Sequence[int], interpreter: str = sys.executable
) -> Figures:
    """What a contender finds, on services with these processes. Raises Unavailable and SubprocessError."""
    paths = [str(program.parent), str(CONTENDERS), os.environ.get("PYTHONPATH")]
    own = {
        RUN: secrets.token_hex(8),
        SERVICES: " ".join(map(str, pids)),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "XDG_STATE_HOME": folder,
    }
    with tempfile.TemporaryFile("w+") as said, ended_afterwards(own[RUN]):
        try:
            done = subprocess.run(
                [interpreter, str(program), place, str(tasks())],
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
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
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
