"""A task runs on what the process that submitted it stood on: its variables, arguments, folder and Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner.engines.local.processes.launches import Launches, launches_folder
from backburner.store.protocol import TaskQuery
from tests import warm
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.services import until

pytestmark = pytest.mark.slow

SERVER = """
import argparse, os, sys, time
from mcp.server.mcpserver import MCPServer
from backburner import Backburner

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="none")
parser.add_argument("transport", nargs="?")
model = parser.parse_args().model
server = MCPServer("shop")


@server.tool()
def look(gate: str = "") -> dict[str, str]:
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    key, folder = os.environ.get("API_KEY", "")[::-1], os.getcwd()  # so that its result does not give it away
    return {"key": key, "model": model, "folder": folder, "python": sys.executable, "pid": str(os.getppid())}


bb = Backburner.attach(server, slow=["look"], queues={"cpu_standard": 1})
if __name__ == "__main__":
    bb.run()
"""
ONE, TWO = "the-first-secret-of-all", "the-second-secret-of-all"

Serve = Callable[..., Any]


@pytest.fixture
def deployment(tmp_path: Path, run_directory: str) -> Iterator[Deployment]:
    (tmp_path / "server.py").write_text(SERVER)
    with Deployment(tmp_path, (tmp_path / "server.py",), {"mcp__patience_s": "60"}) as made:
        yield made


async def looks(deployment: Deployment, *arguments: str, **variables: str) -> dict[str, str]:
    """What the tool sees that a server calls which is started with these."""
    deployment.variables = variables
    program = (*deployment.program, *arguments)
    async with connect(deployment.stdio(*program), "2025", tasks=False) as peer:
        seen: dict[str, str] = (await peer.call("look"))["structuredContent"]
    return seen


async def test_a_server_that_is_started_with_another_key_has_its_tasks_run_with_it(
    deployment: Deployment, tmp_path: Path
) -> None:
    """And what the first one has queued sees the first one's."""
    deployment.variables, gate = {"API_KEY": ONE}, tmp_path / "gate"
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        running = await peer.tool("submit_task", tool_name="look", inputs={"gate": str(gate)})
        queued = await peer.tool("submit_task", tool_name="look", inputs={})
        supervisor = deployment.supervisor()
    assert supervisor is not None
    deployment.variables = {"API_KEY": TWO}
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        own = await peer.tool("submit_task", tool_name="look", inputs={})
        gate.touch()
        for submitted, key in ((running, ONE), (queued, ONE), (own, TWO)):
            waited = await peer.tool("wait_for_task", task_id=submitted["task_id"], timeout_s=30)
            assert waited["state"] == "succeeded"
            result = await peer.tool("get_task_result", task_id=submitted["task_id"])
            assert result["result"]["key"] == key[::-1]
    assert deployment.supervisor() == supervisor, "it has lived through all of it"
    assert_secrets_are_kept(tmp_path, launches_folder(deployment.data_dir))


def assert_secrets_are_kept(folder: Path, launches: Path) -> None:
    for file in filter(Path.is_file, folder.rglob("*")):
        if file.parent == launches:
            assert file.stat().st_mode & 0o077 == 0
        else:
            held = file.read_bytes()
            assert ONE.encode() not in held, file
            assert TWO.encode() not in held, file


async def test_arguments_of_the_server_reach_the_import_in_the_runner(deployment: Deployment) -> None:
    assert (await looks(deployment, "--model", "big"))["model"] == "big"
    assert (await looks(deployment, "--model", "small"))["model"] == "small"
    assert (await looks(deployment))["model"] == "none"


def test_an_app_that_reads_its_arguments_can_be_used_from_the_command_line(deployment: Deployment) -> None:
    command = [warm.BACKBURNER, "call", "look", "--json"]
    target = ["-t", str(deployment.folder / "server.py")]
    called = subprocess.run(
        [*command, *target], env=deployment.environment, capture_output=True, text=True, check=False
    )
    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout)["result"]["model"] == "none"


async def test_what_is_noise_takes_no_new_zygote_and_the_working_folder_does(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await looks(deployment, API_KEY="k", TERM="xterm", SHLVL="1", SSH_TTY="/dev/pts/1")
    again = await looks(deployment, API_KEY="k", TERM="dumb", SHLVL="3", INVOCATION_ID="7")
    assert again == first
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    moved = await looks(deployment, API_KEY="k")
    assert (moved["folder"], moved["pid"] == first["pid"]) == (str(elsewhere), False)


@pytest.mark.whole
async def test_a_server_of_another_environment_of_python_has_its_own(
    deployment: Deployment, tmp_path: Path
) -> None:
    assert (await looks(deployment))["python"] == sys.executable
    venv.create(tmp_path / "other", system_site_packages=True)
    other = tmp_path / "other" / "bin" / "python"
    deployment.interpreter = other
    path = os.pathsep.join([entry for entry in sys.path if entry])
    assert (await looks(deployment, PYTHONPATH=path))["python"] == str(other)


async def test_a_task_whose_python_is_gone_says_so(deployment: Deployment, tmp_path: Path) -> None:
    await looks(deployment, API_KEY="k")
    (file,) = launches_folder(deployment.data_dir).glob("[0-9a-f]*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "executable": str(tmp_path / "no-python")}))
    supervisor = deployment.supervisor()
    assert supervisor is not None
    for zygote in supervisor.children():
        zygote.kill()
    deployment.variables = {"API_KEY": "k"}
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        said = await peer.call("look")
    assert said["isError"]
    assert "no-python" in said["content"][0]["text"]


@pytest.mark.whole
async def test_a_launch_that_is_not_there_leaves_the_supervisor_s_own(deployment: Deployment) -> None:
    deployment.settings["supervisor__environment"] = "own"
    assert (await looks(deployment, API_KEY="first"))["key"] == "tsrif"
    assert (await looks(deployment, API_KEY="second"))["key"] == "tsrif"


async def test_a_launch_stays_while_a_task_or_a_process_needs_it_and_comes_back_with_the_next(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.variables, gate = {"API_KEY": ONE}, tmp_path / "gate"
    with deployment.app(lambda: _reader(deployment)) as app:
        launches, much_later = Launches(app.data_dir), time.time() + 10 * 86400
        async with connect(deployment.stdio(), "2025", tasks=False) as peer:
            await peer.call("look")
            (launch,) = {task.launch for task in app.store.page(TaskQuery())}
            launches.prune(app.store, now=much_later)
            assert launches.find(launch) is not None, "the server may submit at any moment"
            running = await peer.tool("submit_task", tool_name="look", inputs={"gate": str(gate)})
        launches.prune(app.store, now=much_later)
        assert launches.find(launch) is not None, "a task that is not finished names it"
        gate.touch()
        await until(lambda: app.store.get(running["task_id"]).finished)
        launches.prune(app.store)
        assert launches.find(launch) is not None, "it was used just now"

        def is_pruned() -> bool:
            launches.prune(app.store, now=much_later)
            return launches.find(launch) is None

        await until(is_pruned)  # the server ends after its client has gone
        async with connect(deployment.stdio(), "2025", tasks=False) as peer:
            seen = (await peer.call("look"))["structuredContent"]
        assert seen["key"] == ONE[::-1]
        assert launches.find(launch) is not None


def _reader(deployment: Deployment) -> Any:
    from backburner import Backburner

    return Backburner("reader")
