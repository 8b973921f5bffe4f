"""What a slow tool costs a model: a scripted agent behind hosts with their own clocks, on four servers.

The tools take 1 s, 20 s, 2 min and 30 min of a time that passes 20 times quicker (BENCHMARK_SCALE).
Beside Backburner stand fastmcp-tasks, a plain tool, and hand-made tools to start it, to look and to get the
result, all with the same body.
BENCHMARK_ONLY names servers, and BENCHMARK_HOSTS hosts, as the tables have them. BENCHMARK_SAID is a file
for all that was said, to see why a figure is as it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tests.services import accepts, free_port, wait_until
from tests.system.interop.environment import Unavailable, python

from ..peers import ended_afterwards, takes_part
from ..peers.contenders.shapes import RUN
from ..report import Results
from ..targets import AGENTS
from .agent import Call, Conversation, converse
from .calling import Calls
from .connections import Http, Refused, Stdio
from .hosts import HOSTS, Host
from .servers.crunching import LEDGER
from .tables import OURS, TOOLS, Cell, Runs, calls_table, figures_of, runs_in, sums_table

SERVERS = Path(__file__).parent / "servers"
STORE = "BENCHMARK_STORE"

#: Hosts begin so many real seconds apart: what a crowd at the door takes is not asked here.
_APART_S = 0.2

_WARM = {"case": "nobody's", "seconds": 0}

First = Callable[[str, float], Call]


def _directly(case: str, seconds: float) -> Call:
    return "crunch", {"case": case, "seconds": seconds}


def _by_starting(case: str, seconds: float) -> Call:
    return "start_crunch", {"case": case, "seconds": seconds}


def _by_task_tools(case: str, seconds: float) -> Call:
    return "submit_task", {"tool_name": "crunch", "inputs": {"case": case, "seconds": seconds}}


@dataclass(frozen=True)
class Entry:
    """A server, or one more way to use it, and on which hosts it makes sense."""

    program: str
    first: First = _directly
    environment: str = ""
    warm: str = "crunch"
    on: Callable[[Host], bool] = lambda host: host.tasks != "TaskId"


ENTRIES: Mapping[str, Entry] = {
    OURS: Entry("backburner_server.py", on=lambda host: True),
    f"{OURS}, task tools": Entry(
        "backburner_server.py",
        _by_task_tools,
        on=lambda host: not host.has_tasks and host.is_known,
    ),
    "fastmcp-tasks": Entry("fastmcp_server.py", environment="fastmcp"),
    "plain tool": Entry("plain_server.py"),
    "hand-made tools": Entry("hand_made_server.py", _by_starting, warm="start_crunch"),
}


def main() -> Results:
    results = Results()
    with tempfile.TemporaryDirectory(prefix="backburner-agents-") as folder:
        mark = os.environ[RUN] = secrets.token_hex(8)
        with ended_afterwards(mark):
            cells = asyncio.run(_all(Path(folder), results))
    if kept := os.environ.get("BENCHMARK_SAID"):
        said = {cell.conversation.case: cell.conversation.said for cell in cells}
        Path(kept).write_text(json.dumps(said, indent=2))
    for title in dict.fromkeys(cell.server for cell in cells):
        for host in dict.fromkeys(cell.host.title for cell in cells if cell.server == title):
            those = [cell for cell in cells if (cell.server, cell.host.title) == (title, host)]
            results.figures[f"{title} on {host}"] = {
                name: figure for cell in those for name, figure in cell.figures().items()
            }
    results.figures[AGENTS] = figures_of([cell for cell in cells if cell.server.startswith(OURS)])
    console = Console(width=max(Console().width, 150))
    console.print(calls_table(results), sums_table(results))
    return results


async def _all(folder: Path, results: Results) -> list[Cell]:
    """Every server on every host, all at once: nearly all of it is waiting."""
    hosts = [host for host in HOSTS if _chosen(host)]
    commands = {}
    for title, entry in ENTRIES.items():
        if takes_part(title):
            try:
                interpreter = str(python(entry.environment)) if entry.environment else sys.executable
                commands[title] = [interpreter, str(SERVERS / entry.program)]
            except Unavailable as error:
                results.left_out[title] = str(error)
    environment = {
        **os.environ,
        LEDGER: str(folder / "ledger"),
        STORE: f"sqlite:///{folder}/tasks.db",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(SERVERS), os.environ.get("PYTHONPATH")])),
        "BACKBURNER_TASK_ID__STATE_DIR": str(folder),
        "XDG_STATE_HOME": str(folder),
    }
    async with AsyncExitStack() as stack:
        connecting = []
        for title, command in commands.items():
            those = [host for host in hosts if ENTRIES[title].on(host)]
            warm = ENTRIES[title].warm
            web = any(host.over == "http" for host in those)
            port = stack.enter_context(_served(command, environment)) if web else 0
            connecting += [
                (title, host, _connected(host, command, environment, port, folder, warm)) for host in those
            ]
        few = asyncio.Semaphore(3)  # starting servers is work, and what else is there has quick clocks

        async def connected(
            title: str, host: Host, each: AbstractAsyncContextManager[Calls]
        ) -> tuple[str, Host, Calls] | None:
            async with few:
                try:
                    return title, host, await stack.enter_async_context(each)
                except Refused as error:
                    results.left_out[f"{title} on {host.title}"] = str(error)
                    return None

        ready = [one for one in await asyncio.gather(*(connected(*each) for each in connecting)) if one]
        print(f"{len(ready)} hosts are connected …", file=sys.stderr, flush=True)
        began = time.monotonic()
        found = await asyncio.gather(
            *(_on(title, host, calls, place * _APART_S) for place, (title, host, calls) in enumerate(ready))
        )
        print(f"the last chat ended after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    runs = runs_in(folder / "ledger")
    return [
        Cell(title, host, tool, conversation, runs.get(conversation.case, Runs()))
        for title, host, conversations in found
        for tool, conversation in conversations.items()
    ]


async def _on(
    title: str, host: Host, calls: Calls, after_s: float
) -> tuple[str, Host, dict[str, Conversation]]:
    """The agent's conversations about each tool, at once; a host has many chats."""
    await asyncio.sleep(after_s)
    cases = {tool: f"{title}/{host.title}/{tool}".replace(" ", "-").replace(",", "") for tool in TOOLS}
    made = await asyncio.gather(
        *(converse(calls, case, ENTRIES[title].first(case, TOOLS[tool])) for tool, case in cases.items())
    )
    return title, host, dict(zip(cases, made, strict=True))


def _chosen(host: Host) -> bool:
    chosen = os.environ.get("BENCHMARK_HOSTS", "")
    return not chosen or host.title in map(str.strip, chosen.split(";"))


@contextmanager
def _served(command: list[str], environment: Mapping[str, str]) -> Iterator[int]:
    """The port of a server that runs meanwhile. Raises Unavailable."""
    port = free_port()
    server = subprocess.Popen(
        [*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(environment)
    )
    try:
        wait_until(lambda: server.poll() is not None or accepts(port))
        if server.poll() is not None:
            raise Unavailable(f"{' '.join(command)} did not start")
        yield port
    finally:
        server.kill()
        server.wait()


@asynccontextmanager
async def _connected(
    host: Host, command: list[str], environment: Mapping[str, str], port: int, folder: Path, warm_up: str
) -> AsyncIterator[Calls]:
    connection: Http | Stdio
    who = (host.name, host.version, host.protocol, host.capabilities)
    if host.over == "http":
        connection = Http(*who)
        connection.connect(port)
    else:
        connection = Stdio(*who)
        await connection.start([*command, "stdio"], environment)
    calls = Calls(host, connection, folder)
    try:
        await connection.open()
        await calls.learn_tools()
        for _ in range(2):  # the first call of a server is not what is measured
            await connection.request("tools/call", {"name": warm_up, "arguments": _WARM})
        yield calls
    finally:
        await calls.close()
