"""The result of a task says by which token its progress was told, and how long its tool ran."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backburner.store import open_store
from backburner.store.protocol import TaskQuery
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import KINDS, Peer, connect, deploy
from tests.services import until
from tests.system.interop.serving import serving

APP = Path(__file__).with_name("numbers_app.py")
ERAS = pytest.mark.parametrize("era", ["2025", "2026"])
TOKENS = pytest.mark.parametrize("meta", [{}, {"progressToken": "mine"}], ids=["ours", "mine"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, str]]:
    """One supervisor works for all tests, and one server over HTTP answers those that need no pipe."""
    settings = {"mcp__patience_s": "60", "supervisor__idle_exit_s": "0"}
    made = Deployment(tmp_path_factory.mktemp("results"), (APP,), settings)
    with serving(made) as url:
        yield made, url


@pytest.fixture(scope="module")
def deployment(served: tuple[Deployment, str]) -> Deployment:
    return served[0]


@pytest.fixture(scope="module")
def server(served: tuple[Deployment, str]) -> str:
    return served[1]


def ran_ms(deployment: Deployment) -> int:
    """How long the tool of the latest task ran, by the record of its attempt."""
    with closing(open_store(deployment.environment["BACKBURNER_STORE"])) as store:
        (task,) = store.page(TaskQuery(limit=1))
    seconds: float = task.metrics["wall_s"]
    return round(1000 * seconds)


def check(result: dict[str, Any], deployment: Deployment, given: dict[str, Any]) -> dict[str, Any]:
    """The token and the duration that a result tells, which are those of its task."""
    told = {key: result["_meta"][key] for key in ("progressToken", "duration")}
    assert told["duration"] == ran_ms(deployment)
    if given:
        assert told["progressToken"] == given["progressToken"]
    else:
        assert re.fullmatch(r"\d+-\d+", told["progressToken"])
    return told


async def result_of(peer: Peer, task_id: str) -> dict[str, Any]:
    task = await peer.poll(task_id)
    assert task["status"] == "completed"
    if "result" not in task:
        task["result"] = await peer.request("tasks/result", {"taskId": task_id})
    result: dict[str, Any] = task["result"]
    return result


@ERAS
@TOKENS
async def test_the_result_of_a_task_on_any_connection(
    deployment: Deployment, server: str, era: str, meta: dict[str, Any]
) -> None:
    async with connect(server, era) as peer:
        task_id = await peer.start("sleepy", {"seconds": 0.05}, meta=meta)
        told = check(await result_of(peer, task_id), deployment, meta)
    async with connect(deployment.stdio(), era) as peer:
        assert check(await result_of(peer, task_id), deployment, meta) == told
        shown = await peer.call("get_task_result", {"task_id": task_id})
        assert check(shown, deployment, meta) == told
        assert shown["structuredContent"]["_meta"] == told
        waited = await peer.call("wait_for_task", {"task_id": task_id})
        assert check(waited, deployment, meta) == told


@ERAS
@TOKENS
async def test_the_result_of_a_job(deployment: Deployment, era: str, meta: dict[str, Any]) -> None:
    async with connect(deployment.stdio(), era, tasks=False) as peer:
        handle = await peer.call("sleepy", {"seconds": 0.05}, meta=meta)
        job_id = handle["data"]["job_id"]
        (final,) = await until(lambda: peer.wire.of("notifications/tool_result"))
        polled = await peer.request("tools/poll_result", {"job_id": job_id})
        told = check(polled, deployment, meta)
        assert check(final, deployment, meta) == told
        assert handle["_meta"]["progressToken"] == told["progressToken"]
        assert {said["progressToken"] for said in peer.wire.of("notifications/progress")} <= {
            told["progressToken"]
        }


@ERAS
@TOKENS
async def test_the_result_of_a_held_call(
    deployment: Deployment, server: str, era: str, meta: dict[str, Any]
) -> None:
    async with connect(server, era, tasks=False) as peer:
        for fail in (False, True):
            result = await peer.call("held", {"seconds": 0.05, "fail": fail}, meta=meta)
            assert result["isError"] is fail
            check(result, deployment, meta)


async def test_a_job_that_was_cancelled_tells_how_long_its_tool_ran(server: str) -> None:
    async with connect(server, "2025", tasks=False) as peer:
        handle = await peer.call("sleepy", {"seconds": 30})
        await peer.tool("cancel_task", task_id=handle["data"]["job_id"])
        waited = await peer.call("wait_for_task", {"task_id": handle["data"]["job_id"]})
        polled = await peer.request("tools/poll_result", {"job_id": handle["data"]["job_id"]})
        assert waited["structuredContent"]["state"] == "cancelled"
        for result in (waited, polled):
            assert 0 <= result["_meta"]["duration"] < 30_000
            assert result["_meta"]["progressToken"] == handle["_meta"]["progressToken"]


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_result_of_a_task_on_each_framework(tmp_path: Path, kind: str) -> None:
    with deploy(tmp_path, kind) as deployment:
        async with connect(deployment.stdio(), "2026") as peer:
            meta = {"progressToken": 7}
            check(await result_of(peer, await peer.start("slow", {"n": 1}, meta=meta)), deployment, meta)
        async with connect(deployment.stdio(), "2025", tasks=False) as peer:
            check(await peer.call("hold", meta=meta), deployment, meta)
