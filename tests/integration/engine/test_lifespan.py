"""A server's lifespan is entered once for each runner, lives as long as that, and ends in order with it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.deployment import Deployment
from tests.integration.engine.test_local_apps import write
from tests.integration.mcp_server.harness import connect
from tests.services import ended, until

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("lifespan_server.py")
KINDS = ("lowlevel", "mcpserver", "fastmcp")


@pytest.fixture
def deployment(tmp_path: Path, run_directory: str, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    kind = getattr(request, "param", "mcpserver")
    (tmp_path / "lab.py").write_text(SCRIPT.read_text())
    variables = {"SERVER_KIND": kind, "LIFESPAN_DIARY": str(tmp_path / "diary")}
    with Deployment(tmp_path, (tmp_path / "lab.py",), {"mcp__patience_s": "60"}, variables) as made:
        yield made


def diary(deployment: Deployment) -> list[str]:
    file = deployment.folder / "diary"
    return file.read_text().splitlines() if file.exists() else []


async def looks(peer: Any, times: int) -> list[dict[str, int]]:
    seen = [(await peer.call("look")) for _ in range(times)]
    assert not any(each.get("isError") for each in seen), seen
    return [each["structuredContent"] for each in seen]


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("deployment", KINDS, indirect=True)
async def test_the_tasks_of_a_runner_share_one_lifespan_which_ends_with_it(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        seen = await looks(peer, 3)
    (pid,) = {each["pid"] for each in seen}
    assert [each["uses"] for each in seen] == [1, 2, 3]
    assert [each["left"] for each in seen] == [0, 0, 0], "what a task leaves behind does not go on"
    assert diary(deployment).count(f"begin {pid}") == 1
    assert f"end {pid}" not in diary(deployment)
    supervisor = deployment.supervisor()
    assert supervisor is not None
    supervisor.send_signal(signal.SIGTERM)
    assert ended(supervisor)
    assert diary(deployment).count(f"end {pid}") == 1


async def test_a_lifespan_goes_on_between_tasks(deployment: Deployment) -> None:
    deployment.variables["LIFESPAN_TICKS"] = "yes"
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        ((pid,),) = [{each["pid"] for each in await looks(peer, 1)}]
        before = diary(deployment).count(f"tick {pid}")
        await until(lambda: diary(deployment).count(f"tick {pid}") > before + 5)


async def test_the_lifespan_of_a_runner_that_is_replaced_ends(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        (first,) = await looks(peer, 1)
        write(deployment.folder / "lab.py", SCRIPT.read_text() + "\n")
        (second,) = await looks(peer, 1)
        while second["pid"] == first["pid"]:
            (second,) = await looks(peer, 1)
        await until(lambda: f"end {first['pid']}" in diary(deployment))
    assert second["uses"] == 1


@pytest.mark.whole
async def test_a_fresh_runner_has_a_lifespan_of_its_own_each_time(deployment: Deployment) -> None:
    deployment.variables["LIFESPAN_ISOLATION"] = "fresh"
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        pids = [each["pid"] for each in await looks(peer, 2)]
        assert len({*pids}) == 2
        for pid in pids:
            await until(lambda pid=pid: f"end {pid}" in diary(deployment))  # type: ignore[misc]


@pytest.mark.whole
async def test_a_spawned_runner_has_one_lifespan_too(deployment: Deployment) -> None:
    deployment.variables["LIFESPAN_ISOLATION"] = "spawn"
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        assert [each["uses"] for each in await looks(peer, 2)] == [1, 2]


async def test_a_lifespan_that_fails_fails_the_task_and_is_tried_again(deployment: Deployment) -> None:
    broken = deployment.folder / "diary.broken"
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        broken.touch()
        said = await peer.call("look")
        assert said["isError"]
        assert "the database is away" in said["content"][0]["text"]
        broken.unlink()
        assert [each["uses"] for each in await looks(peer, 2)] == [1, 2]


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("deployment", KINDS, indirect=True)
def test_looking_at_an_app_does_not_enter_its_lifespan(deployment: Deployment) -> None:
    command = [warm.BACKBURNER]
    target = ["-t", str(deployment.folder / "lab.py")]
    listed = subprocess.run(
        [*command, "tools", *target], env=deployment.environment, capture_output=True, text=True, check=False
    )
    assert "look" in listed.stdout, listed.stderr
    subprocess.run([*command, "ls", *target], env=deployment.environment, capture_output=True, check=True)
    assert diary(deployment) == []
