"""A server with Backburner attached answers as it did before, whatever its framework and whoever calls.

Clients of others make the same calls of the same server, plain and attached, held and as a task. What they
are told must be the same, but for what the guide lists.
"""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import ROOT, Deployment
from tests.system.interop import environment
from tests.system.interop.serving import of_others, serving
from tests.system.sameness.calls import CALLS, DIFFERENT, DIFFERENT_AS_TASK, OF_CLIENT, comparable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOKEN = "opensesame"
SERVER = Path(__file__).with_name("servers.py")
GUIDE = ROOT / "docs" / "start" / "what-changes.md"
Outcomes = dict[str, dict[str, Any]]


def in_python(interpreter: Path | str, program: str) -> list[str]:
    return [str(interpreter), "-W", "ignore", str(environment.CLIENTS / program)]


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "mcp_2": lambda: in_python(sys.executable, "calls_mcp_2.py"),
    "mcp_1": lambda: in_python(environment.python("mcp1"), "calls_mcp_1.py"),
    "fastmcp_4": lambda: in_python(environment.python("fastmcp"), "calls_fastmcp_4.py"),
    "typescript_1": lambda: environment.node_program("calls_typescript_1.mjs"),
    "typescript_2": lambda: environment.node_program("calls_typescript_2.mjs"),
}
#: The clients that a framework has in every run: together all of them.
USUAL = {
    "mcpserver": (),
    "fastmcp": ("mcp_2",),
    "lowlevel": (),
}


class Servers:
    """The servers, each started when it is first needed, for all tests of this module."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._urls: dict[tuple[str, bool], str] = {}

    def url(self, kind: str, *, attached: bool) -> str:
        if (kind, attached) not in self._urls:
            self._urls[kind, attached] = self._stack.enter_context(self._start(kind, attached))
        return self._urls[kind, attached]

    @contextlib.contextmanager
    def _start(self, kind: str, attached: bool) -> Iterator[str]:
        variables = {"SERVER_KIND": kind, **({"ATTACHED": "1"} if attached else {})}
        settings = {"supervisor__idle_exit_s": "0"}
        folder = self._folder / f"{kind}-{attached}"
        folder.mkdir()
        deployment = Deployment(folder, (SERVER,), settings, variables)
        with serving(deployment, token=TOKEN, supervised=attached) as url:
            yield url


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with contextlib.ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("sameness"), stack)


def outcomes(command: list[str], calls: list[Any], ways: dict[str, tuple[str, str]]) -> dict[str, Outcomes]:
    """What a client program says of the calls, each way: held or as a task, of the server at an address."""
    programs = {
        name: subprocess.Popen(
            [*command, how, url],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, (how, url) in ways.items()
    }
    said: dict[str, Outcomes] = {}
    try:
        for program in programs.values():
            assert program.stdin is not None
            program.stdin.write(json.dumps(calls))
            program.stdin.close()
            program.stdin = None
        for name, program in programs.items():
            output, errors = program.communicate(timeout=200)
            lines = [json.loads(line) for line in output.split("\n") if line]
            said[name] = {line["name"]: line for line in lines}
            assert len(said[name]) == len(calls), errors
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()
    return said


def pairs() -> Iterator[Any]:
    """Each framework with each client."""
    for kind, client in product(CALLS, CLIENTS):
        marks = () if client in USUAL[kind] else pytest.mark.whole
        yield pytest.param(kind, client, marks=marks)


@pytest.mark.parametrize(("kind", "client"), [*pairs()])
def test_a_client_is_told_the_same_before_and_after(servers: Servers, kind: str, client: str) -> None:
    plain, attached = servers.url(kind, attached=False), servers.url(kind, attached=True)
    ways = {"plain": ("held", plain), "held": ("held", attached), "task": ("task", attached)}
    said = outcomes(of_others(CLIENTS[client]), CALLS[kind], ways)

    for way, known in (("held", DIFFERENT), ("task", DIFFERENT_AS_TASK)):
        for name, *_ in CALLS[kind]:
            before = comparable(said["plain"][name], as_task=way == "task")
            after = comparable(said[way][name], as_task=way == "task")
            if name not in known and not (way == "task" and name in OF_CLIENT.get(client, ())):
                assert after == before, (way, name)


def test_what_is_different_is_in_the_guide() -> None:
    text = GUIDE.read_text()
    section = re.split(r"^## ", text.partition("## The rest\n")[2], flags=re.M)[0]
    assert section
    for name, words in DIFFERENT_AS_TASK.items():
        assert words in section, name


def test_there_are_thirty_tools_of_every_kind() -> None:
    assert all(len({tool for _, tool, _ in CALLS[kind]}) >= 30 for kind in ("mcpserver", "fastmcp"))
