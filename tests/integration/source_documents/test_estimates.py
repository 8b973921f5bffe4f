"""The estimate that a client is told: always a number, and always with what it comes from."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect

APP = Path(__file__).with_name("numbers_app.py")
ERAS = pytest.mark.parametrize("era", ["2025", "2026"])


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path, (APP,), {"mcp__patience_s": "60"}) as made:
        yield made


def told(data: dict[str, Any]) -> tuple[Any, str]:
    return data["estimated_runtime_seconds"], data["estimate_source"]


async def run(peer: Peer, tool: str, **arguments: Any) -> tuple[Any, str]:
    """Run a tool to its end; gives the estimate of its handle."""
    handle = await peer.call(tool, arguments)
    waited = await peer.tool("wait_for_task", task_id=handle["data"]["job_id"])
    assert waited["finished"] is True
    return told(handle["data"])


@pytest.mark.whole(but_first=1)
@ERAS
async def test_every_source_of_an_estimate_in_its_turn(deployment: Deployment, era: str) -> None:
    async with connect(deployment.stdio(), era, tasks=False) as peer:
        assert await run(peer, "unknown") == (60.0, "default")
        assert await run(peer, "estimated") == (45.0, "author")
    async with connect(deployment.stdio(), era, tasks=False) as peer:
        seconds, source = await run(peer, "sleepy", seconds=0.2)
        assert source == "other_tools"
        assert 1 <= seconds < 60
        seconds, source = await run(peer, "unknown")
        assert source == "learned"
        assert 1 <= seconds < 60


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("broken", ["raises", "negative", "nan", "text"])
async def test_an_estimate_that_makes_no_sense_is_as_none(deployment: Deployment, broken: str) -> None:
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        assert await run(peer, f"estimate_{broken}") == (60.0, "default")


@pytest.mark.whole(but_first=1)
@ERAS
async def test_every_surface_tells_the_same_estimate(
    deployment: Deployment, tmp_path: Path, era: str
) -> None:
    arguments = {"steps": [{"percent": 10}], "folder": str(tmp_path)}
    async with connect(deployment.stdio(), era, tasks=False) as peer:
        handle = await peer.call("tell_job", arguments)
        job_id = handle["data"]["job_id"]
        assert told(handle["data"]) == (60.0, "default")
        polled = await peer.request("tools/poll_result", {"job_id": job_id})
        assert told(polled["data"]) == (60.0, "default")
        assert told(await peer.tool("get_task_status", task_id=job_id)) == (60.0, "default")
        assert told(await peer.tool("submit_task", tool_name="estimated")) == (45.0, "author")
        listed = (await peer.tool("list_tasks"))["tasks"]
        assert [(task["tool_name"], *told(task)) for task in listed] == [
            ("estimated", 45.0, "author"),
            ("tell_job", 60.0, "default"),
        ]
        (tmp_path / "0").touch()
        await peer.tool("wait_for_task", task_id=job_id)


def test_the_command_line_tells_it_too(deployment: Deployment) -> None:
    def backburner(*words: str) -> str:
        command = [warm.BACKBURNER, *words, "-t", str(APP)]
        done = subprocess.run(
            command, env=deployment.environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True
        )
        return done.stdout

    shown = json.loads(backburner("call", "--detach", "unknown", "--json"))
    assert (shown["estimate_s"], shown["estimate_source"]) == (60.0, "default")
    shown = json.loads(backburner("call", "--detach", "estimated", "--json"))
    assert (shown["estimate_s"], shown["estimate_source"]) == (45.0, "author")
    again = json.loads(backburner("show", shown["task_id"], "--json"))
    assert (again["estimate_s"], again["estimate_source"]) == (45.0, "author")
    assert "as the tool's author says" in backburner("show", shown["task_id"])


async def test_a_guess_is_no_reason_to_hand_out_a_job_at_once(tmp_path: Path) -> None:
    """The guess is longer than the client's patience, and still the call is held, as with none."""
    settings = {"mcp__client_patience": '{"mcp": 30}'}
    with Deployment(tmp_path, (APP,), settings) as deployment:
        async with connect(deployment.stdio(), "2025", tasks=False) as peer:
            result = await peer.call("tell", {"steps": [], "folder": ""})
            assert result["content"] == [{"type": "text", "text": "told"}]


async def test_a_guess_gives_no_time_left(deployment: Deployment, tmp_path: Path) -> None:
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        handle = await peer.call("tell_job", {"steps": [{"message": "on it"}], "folder": str(tmp_path)})
        status = await peer.tool("get_task_status", task_id=handle["data"]["job_id"])
        assert status["eta_s"] is None
        (tmp_path / "0").touch()
        await peer.tool("wait_for_task", task_id=handle["data"]["job_id"])
