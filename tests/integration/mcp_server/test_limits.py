"""At most so many tasks run, of a tool, of an owner and with one key; who waits for that says so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import warm
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.services import until

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("limited_server.py")
WORKERS = '{"cpu_standard": {"workers": 4}}'
ONE_KEY = "At most 1 task of index with the key 'a' runs at a time."
TWO_TASKS = "At most 2 tasks of index run at a time."


class Ledger:
    """Who began and ended, as the tool wrote it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "ledger"

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def begun(self) -> list[str]:
        return [name for what, name, _ in self.lines() if what == "begin"]

    def pid_of(self, name: str) -> int:
        return next(int(pid) for what, found, pid in self.lines() if (what, found) == ("begin", name))

    def let_end(self, name: str) -> None:
        (self.folder / name).touch()

    def most_at_once(self, killed: int) -> int:
        """Of those that ran at a time; the process that was killed wrote no end."""
        running: set[str] = set()
        most = 0
        for what, _, pid in self.lines():
            running.discard(pid) if what == "end" else running.add(pid)
            most = max(most, len(running - {str(killed)}))
        return most


async def submitted(peer: Peer, ledger: Ledger, name: str) -> str:
    """A task whose repository is the first letter of its name."""
    inputs = {"repo": name[0], "name": name, "folder": str(ledger.folder)}
    return str((await peer.tool("submit_task", tool_name="index", inputs=inputs))["task_id"])


async def why(peer: Peer, task_id: str) -> str | None:
    reason: str | None = (await peer.tool("get_task_status", task_id=task_id)).get("waits_for")
    return reason


async def is_held(peer: Peer, task_id: str, reason: str) -> None:
    for _ in range(600):
        if await why(peer, task_id) == reason:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"it waits for {await why(peer, task_id)!r}")


def command_line(deployment: Deployment, *words: str) -> str:
    command = [warm.BACKBURNER, *words]
    done = subprocess.run(command, env=deployment.environment, capture_output=True, text=True, check=True)
    return done.stdout


async def test_tasks_wait_for_their_limits_and_go_on_in_order(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    settings = {"queues": WORKERS, "supervisor__keeper_interval_s": "600"}
    with Deployment(tmp_path, (SCRIPT,), settings) as place:
        async with connect(place.stdio(), "2026") as peer:
            a1 = await submitted(peer, ledger, "a1")
            await until(
                lambda: ledger.begun() == ["a1"]
            )  # it has its place, but the first process takes time
            a2 = await submitted(peer, ledger, "a2")
            await is_held(peer, a2, ONE_KEY)
            b1, c1, d1 = [await submitted(peer, ledger, name) for name in ("b1", "c1", "d1")]
            await is_held(peer, d1, TWO_TASKS)
            await until(lambda: ledger.begun() == ["a1", "b1"])
            await is_held(peer, c1, TWO_TASKS)

            task = await peer.request("tasks/get", {"taskId": a2})
            assert task["statusMessage"] == f"Queued, and held: {ONE_KEY}"
            assert ONE_KEY in command_line(place, "show", a2, "--json")
            assert "held" in command_line(place, "show", a2)
            assert ONE_KEY in command_line(place, "ls", "--json")

            killed = ledger.pid_of("a1")
            os.kill(killed, signal.SIGKILL)  # it is tried again, and is older than all that wait
            await until(lambda: ledger.begun().count("a1") == 2)
            ledger.let_end("b1")
            await until(lambda: "c1" in ledger.begun())
            ledger.let_end("a1")
            await until(lambda: "a2" in ledger.begun())
            for name in ("c1", "d1", "a2"):
                ledger.let_end(name)
            ended = await asyncio.gather(*map(peer.poll, (a1, a2, b1, c1, d1)))
    assert [task["status"] for task in ended] == ["completed"] * 5
    assert ledger.begun() == ["a1", "b1", "a1", "c1", "a2", "d1"]
    assert ledger.most_at_once(killed) == 2


async def test_a_limit_of_the_settings_counts_after_a_restart_for_what_waits_already(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    narrow = {"queues": WORKERS, "limits__tools": '{"ind*": 1}', "supervisor__keeper_interval_s": "0.5"}
    with Deployment(tmp_path, (SCRIPT,), narrow) as place:
        async with connect(place.stdio(), "2026") as peer:
            await submitted(peer, ledger, "a1")
            b1 = await submitted(peer, ledger, "b1")
            await is_held(peer, b1, "At most 1 task of index runs at a time.")
            assert "b1" not in ledger.begun()
    with Deployment(tmp_path, (SCRIPT,), {**narrow, "limits__tools": "{}"}) as place:
        async with connect(place.stdio(), "2026") as peer:
            await until(lambda: {"a1", "b1"} <= set(ledger.begun()))  # both, and none has ended
            for name in ("a1", "b1"):
                ledger.let_end(name)
            assert (await peer.poll(b1))["status"] == "completed"
