"""Each engine beside the bare queue that it stands on, with the same workers: what a record costs.

The shapes are those of `peers`. A bare queue takes part three times: keeping nothing, with results in the
memory of Redis, and durable: a message is on disk when `submit` returns (confirmed by RabbitMQ, or fsynced by
Redis), and so is a result that was read, as with us. BENCHMARK_TASKS (400), BENCHMARK_ROUNDS (1) and
BENCHMARK_ONLY mean what they mean there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from tests.system.interop.environment import Unavailable

from ..peers import Service, in_rounds, run_program, services, takes_part
from ..report import Results
from ..targets import BROKERS, DISPATCH, KEEPS, LIBRARIES, RATE, STORES, bare, own

CONTENDERS = Path(__file__).parent / "contenders"
SERVICES = {"Redis": "redis", "RabbitMQ": "rabbitmq", "PostgreSQL": "postgresql"}
DURABLE = "durable redis"


@dataclass(frozen=True)
class Entry:
    """A row: a program of `contenders`, the words of its address, and the services in it by their names."""

    title: str
    program: str
    words: tuple[str, ...]
    on: tuple[str, ...] = ()


def entries() -> Iterator[Entry]:
    """Ours right after the bare queue that they are held against: the machine changes with the hours."""
    for library in LIBRARIES:
        engine = library.lower()
        for broker in BROKERS:
            for keeps in KEEPS:
                results = DURABLE if keeps == "durable" else "redis"
                queue = DURABLE if keeps == "durable" and broker == "Redis" else SERVICES[broker]
                title, program = bare(library, broker, keeps), f"bare_{engine}"
                yield Entry(title, program, (keeps, queue, results, "pipe"), (queue, results))
            for store in STORES:
                place = SERVICES.get(store, "sqlite")
                words = (engine, SERVICES[broker], place)
                yield Entry(own(engine, broker, store), "engine_tasks", words, (SERVICES[broker], place))
    for store in STORES:
        place = SERVICES.get(store, "sqlite")
        yield Entry(own("local", "", store), "engine_tasks", ("local", "-", place), (place,))


def main() -> Results:
    os.environ.setdefault("BENCHMARK_TASKS", "400")
    os.environ.setdefault("BENCHMARK_ROUNDS", "1")
    return in_rounds(one_round)


def one_round() -> Results:
    results = Results()
    chosen = [entry for entry in entries() if takes_part(entry.title)]
    needed = {name for entry in chosen for name in entry.on if name != "sqlite"}
    with (
        services(*sorted(needed)) as there,
        tempfile.TemporaryDirectory(prefix="backburner-bench-") as folder,
    ):
        for number, entry in enumerate(chosen):
            print(f"{entry.title} …  (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
            try:
                address = " ".join(_address(word, number, there, folder) for word in entry.words)
                pids = [there[name].server.pid for name in entry.on if name in there]
                program = CONTENDERS / f"{entry.program}.py"
                results.figures[entry.title] = run_program(program, address, folder, pids)
            except (Unavailable, subprocess.SubprocessError) as error:
                results.left_out[entry.title] = str(error)
    return results


def _address(word: str, number: int, there: dict[str, Service], folder: str) -> str:
    """A word as the program is given it. Raises Unavailable where it names a service that is not there."""
    if word in ("sqlite", "pipe"):
        return f"{'sqlite:///' if word == 'sqlite' else ''}{folder}/{number}.{word}"
    if word not in (DURABLE, *SERVICES.values()):
        return word
    if word not in there:
        raise Unavailable(f"{word} is not there")
    return there[word].place(number)


def costs_table(results: Results) -> Table:
    """What a task costs on an engine, as a multiple of what it costs on each of the bare queues."""
    kinds = {RATE: "a task", DISPATCH: "dispatch"}
    columns = [f"{kind} ÷ {keeps}" for kind in kinds.values() for keeps in KEEPS.values()]
    table = Table("", *columns, box=box.MARKDOWN)
    for library in LIBRARIES:
        for broker in BROKERS:
            for store in STORES:
                title = own(library.lower(), broker, store)
                cells = [
                    _ratio(results, title, bare(library, broker, keeps), figure)
                    for figure in kinds
                    for keeps in KEEPS
                ]
                if any(cells):
                    table.add_row(title, *cells)
    return table


def _ratio(results: Results, ours: str, theirs: str, figure: str) -> str:
    one, other = (results.figures.get(title, {}).get(figure) for title in (ours, theirs))
    if not one or not other:
        return ""
    return f"{other / one if figure == RATE else one / other:.1f}"
