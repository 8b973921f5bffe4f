"""What the guides show does what they say."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from backburner import Backburner
from backburner.tools.targets import load, parse
from tests import warm
from tests.deployment import Deployment
from tests.integration.engine.local import Client as Waiting
from tests.integration.engine.local import running
from tests.integration.source_documents.pipe import serving

DOCS = Path(__file__).parents[2] / "docs"
PACKS_PAGE = (DOCS / "guides" / "packs.md").read_text()
PACKS = re.findall(r"^\| (\w+) \|.*?`backburner serve ([\w.]+)` \| (.*) \|$", PACKS_PAGE, re.M)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path) as made:
        yield made


def snippet(page: str, heading: str) -> str:
    section = (DOCS / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(code)


def app_of(code: str, folder: Path) -> Backburner:
    path = folder / "lab.py"
    path.write_text(code.replace("sqlite:///", f"sqlite:///{folder}/"))
    app: Backburner = load(parse(str(path)))
    return app


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(("pack", "target", "tools"), PACKS)
async def test_each_pack_is_served_by_the_command_that_is_printed(
    pack: str, target: str, tools: str, deployment: Deployment
) -> None:
    words = ["-m", "backburner.cli", "serve", target]
    server = StdioServerParameters(command=warm.PYTHON, args=words, env=deployment.environment)
    async with Client(stdio_client(server)) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
    assert set(re.findall(r"`([a-z_]+)`", tools)) <= listed


def test_a_pack_is_tried_without_a_client(deployment: Deployment) -> None:
    (lines,) = re.findall(r"```sh\n(.*?)```", PACKS_PAGE, re.DOTALL)
    deployment.variables["XDG_STATE_HOME"] = str(deployment.folder)
    said = ""
    for line in lines.splitlines():
        program, *words = shlex.split(line)
        assert program == "backburner"
        command = deployment.command(*words, program=("-m", "backburner.cli"))
        ran = subprocess.run(
            command,
            env=deployment.environment,
            cwd=deployment.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        said += ran.stdout
    assert "wksm_monitor_sync" in said
    assert '"files_processed"' in said


def test_the_two_stage_server_answers_and_notifies_as_the_guide_prints(deployment: Deployment) -> None:
    code = snippet("guides/two-stage.md", "Try it")
    guide = (DOCS / "guides" / "two-stage.md").read_text()
    (sent,) = re.findall(r"<<'END'\n(.*?)END\n", guide, re.DOTALL)
    (printed,) = re.findall(r"```json\n(.*?)```", guide, re.DOTALL)
    app = deployment.folder / "lab.py"
    app.write_text(code)
    with serving(deployment, app=app) as pipe:
        for line in sent.splitlines():
            pipe.send(json.loads(line))
        for line in printed.splitlines():
            pipe.until(partial(covers, printed=json.loads(line)))


def covers(heard: Any, printed: Any) -> bool:
    """Whether all that the guide prints was heard; an ellipsis stands for anything."""
    if isinstance(printed, dict):
        return isinstance(heard, dict) and all(covers(heard.get(key), printed[key]) for key in printed)
    if isinstance(printed, list):
        return isinstance(heard, list) and all(map(covers, heard, printed))
    return heard == printed or (isinstance(printed, str) and printed.endswith("…"))


def test_owners_take_turns_where_the_queue_is_shared_fairly(
    tmp_path: Path, run_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKBURNER_QUEUES", '{"cpu_standard": 1}')
    app = app_of(snippet("guides/limits-and-queues.md", "Share a queue fairly"), tmp_path)
    waiting = Waiting(app)  # nobody works yet
    owners = ("ann", "ann", "ann", "bob")
    submitted = [waiting.submit("render", {"owner": owner}, scene="a") for owner in owners]
    with running(app) as local:
        *_, last_of_ann, bob = [local.end(task_id).started_at or 0 for task_id in submitted]
    assert bob <= last_of_ann


async def test_the_app_that_is_mounted_answers_under_its_path(tmp_path: Path) -> None:
    path = tmp_path / "web.py"
    path.write_text(snippet("guides/operating.md", "Serve inside your own application"))
    names = runpy.run_path(str(path))
    transport = httpx2.ASGITransport(app=names["web"])
    async with httpx2.AsyncClient(transport=transport, base_url="https://lab.example") as http:
        assert (await http.get("/tasks/healthz")).text == "ok\n"
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
        assert (await http.post("/tasks/mcp", json=hello)).status_code != 404
