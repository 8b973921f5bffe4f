"""Real clients whose own timers run out on a held call, and who call again; and those whom somebody stops."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.services import wait_until
from tests.system.interop import environment
from tests.system.interop.serving import of_others, serving
from tests.system.interop.test_typed_results import COMMANDS
from tests.whole import WHOLE

pytestmark = pytest.mark.slow

SERVER = environment.HERE / "ledger_server.py"
#: The client, and how it reaches the server. Over HTTP the one speaks 2025-11-25, and the other 2026-07-28.
WAYS = [("mcp_2", "stdio")]
if WHOLE:  # each is a program that all tests below share
    WAYS = [*((client, "stdio") for client in COMMANDS), ("typescript_1", "http"), ("mcp_2", "http")]
#: Those who can say that somebody stopped them. Python SDK 1 cannot, nor can anybody over HTTP at 2026-07-28.
SAYING = [way for way in WAYS if way[0] != "mcp_1" and way != ("mcp_2", "http")]


class Ledger:
    """What the clients said, all of which ran at once, and what their tools wrote down."""

    def __init__(self, folder: Path, deployment: Deployment, url: str) -> None:
        self.folder, self.deployment = folder, deployment
        servers = {"http": ["http", url], "stdio": ["stdio", *deployment.command("stdio", program=(SERVER,))]}
        programs = {way: self._start(way, servers[way[1]]) for way in WAYS}
        self.said = {way: _scenarios(program.communicate()[0]) for way, program in programs.items()}

    def _start(self, way: tuple[str, str], server: list[str]) -> "subprocess.Popen[str]":
        name, tool = "-".join(way), "unknown" if way[0] == "mcp_1" else "work"
        slow = {"tool": tool, "arguments": {"name": name, "seconds": 5}}
        calls: dict[str, Any] = {"warm": {**slow, "arguments": {"name": f"{name}-warm", "seconds": 0}}}
        if way in SAYING:
            calls["stopped"] = {
                "tool": "work",
                "arguments": {"name": f"{name}-stop", "seconds": 60},
                "stop_at": str(self.folder / f"{name}-stop"),
            }
        calls |= {
            "timed_out": {**slow, "timeout_s": 2},
            "again": {**slow, "after": str(self.folder / f"{name}.done"), "timeout_s": 50},
            "new": {**slow, "meta": {"backburner/new": True}, "timeout_s": 50},
        }
        client = "mcp" if way[0] == "mcp_1" else "a-program"
        command = [*of_others(COMMANDS[way[0]]), client, json.dumps(calls), *server]
        return subprocess.Popen(command, env=self.deployment.environment, stdout=subprocess.PIPE, text=True)

    def runs(self, name: str) -> int:
        return len((self.folder / name).read_text().splitlines())


def _scenarios(said: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in said.splitlines()]
    return {line["scenario"]: line for line in lines}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    folder = tmp_path_factory.mktemp("ledger")
    # Python SDK 1 gives up without a word: by its name it is handed the handle, as if it still waited.
    settings = {"mcp__patience_s": "60", "mcp__client_patience": '{"mcp": 3}', "supervisor__idle_exit_s": "0"}
    deployment = Deployment(folder, (SERVER,), settings, {"LEDGER": str(folder)})
    with serving(deployment, SERVER) as url:
        yield Ledger(folder, deployment, url)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_the_task_of_a_call_that_timed_out_finishes_and_the_same_call_gets_its_result(
    ledger: Ledger, way: tuple[str, str]
) -> None:
    name, said = "-".join(way), ledger.said[way]
    assert "imed out" in said["timed_out"]["message"]
    again, new = said["again"], said["new"]
    assert again["structured"] == {"worked": name}
    assert again["meta"]["backburner/joined"]
    assert "joined" in again["content"][-1]["text"]
    assert again["meta"]["duration"] >= 4900
    # Only who asked for a new one got one: the ledger says who ran.
    assert "backburner/joined" not in new["meta"]
    assert ledger.runs(name) == 2


@pytest.mark.parametrize("way", SAYING, ids="-".join)
def test_a_stop_by_somebody_kills_the_task(ledger: Ledger, way: tuple[str, str]) -> None:
    assert wait_until((ledger.folder / f"{'-'.join(way)}-stop.killed").exists)
