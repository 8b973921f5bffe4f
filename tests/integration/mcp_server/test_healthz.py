"""`/healthz` and `doctor` notice whatever keeps tasks from being done."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests import services
from tests.deployment import Deployment, HttpServer
from tests.integration.mcp_server.harness import connect, deploy
from tests.integration.mcp_server.test_doorbells import make_bells_impossible

#: Of a database that takes heartbeats, and nothing of what a supervisor has to say of its tasks.
_REFUSE = """
CREATE TRIGGER refuse BEFORE INSERT ON task_events WHEN new.signal NOT IN ('submit', 'claim')
BEGIN SELECT raise(ABORT, 'refused'); END
"""


_QUICK = {"supervisor__lease_grace_s": "6", "supervisor__heartbeat_s": "0.5"}
Served = tuple[Deployment, HttpServer]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deploy(tmp_path, **_QUICK) as made:
        yield made


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server and its supervisor for all tests that leave them as well as they found them."""
    made = deploy(tmp_path_factory.mktemp("well"), supervisor__idle_exit_s="0", **_QUICK)
    with made, made.http() as server:
        services.running.add(server.pid)
        asyncio.run(do_a_task(server))
        services.running.add(running_supervisor(made).pid)
        yield made, server


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for tokens, on a store that cannot be read."""
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "tokens").write_text("")
    (folder / "tasks.db").write_bytes(b"no database " * 1000)
    with deploy(folder, http__auth__tokens=str(folder / "tokens"), **_QUICK) as made, made.http() as server:
        services.running.add(server.pid)
        yield made, server


async def do_a_task(server: HttpServer) -> None:
    async with connect(server.url, "2026") as peer:
        await peer.poll(await peer.start("slow", {"n": 1}))


async def health(server: HttpServer, path: str = "/healthz") -> tuple[int, str]:
    async with httpx2.AsyncClient(timeout=5) as http:
        answer = await http.get(f"{server.address}{path}")
    return answer.status_code, answer.text


async def becomes(
    server: HttpServer, status: int, said: str, within_s: float = 40, path: str = "/healthz"
) -> None:
    async with asyncio.timeout(within_s):
        while (found := await health(server, path)) != (status, said):
            await asyncio.sleep(0.2)
            print(found)


def doctor(deployment: Deployment) -> dict[str, Any]:
    """What the doctor finds, by check; only what is a problem."""
    words = (
        "-m",
        "backburner.cli",
        "doctor",
        "--json",
        "--store",
        deployment.environment["BACKBURNER_STORE"],
    )
    command = deployment.command(program=words)
    said = subprocess.run(command, env=deployment.environment, capture_output=True, text=True, check=False)
    findings = json.loads(said.stdout)["findings"]
    return {one["check"]: one["message"] for one in findings if one["level"] == "problem"}


def running_supervisor(deployment: Deployment) -> psutil.Process:
    assert services.wait_until(deployment.supervisor)
    found = deployment.supervisor()
    assert found is not None
    return found


async def test_a_server_that_does_its_work_is_well(well: Served) -> None:
    deployment, server = well
    assert await health(server) == (200, "ok\n")
    await do_a_task(server)
    assert await health(server) == (200, "ok\n")
    assert doctor(deployment) == {}


async def asked(server: HttpServer, path: str) -> tuple[int, dict[str, Any]]:
    async with httpx2.AsyncClient(timeout=5) as http:
        answer = await http.get(f"{server.address}{path}", headers={"Accept": "application/json"})
    return answer.status_code, answer.json()


def told(queued: int = 0, running: int = 0, full: int = 0, **parts: Any) -> dict[str, Any]:
    queues = {"queued": queued, "running": running, "full": full}
    return {"ok": True, "store": "ok", "supervisor": "ok", "queues": queues, **parts}


async def test_store_supervisor_and_queues_are_told_in_json_too(deployment: Deployment) -> None:
    with deployment.http() as server:
        assert await asked(server, "/healthz") == (200, told())  # before there is a store
        await do_a_task(server)
        assert await asked(server, "/readyz") == (200, told())


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_the_part_that_is_in_trouble_is_told_in_json(damaged: Served, path: str) -> None:
    _, server = damaged
    assert await asked(server, path) == (503, told(ok=False, store=["the store cannot be read"]))


@pytest.mark.slow
async def test_a_server_whose_queues_are_full_is_well_but_not_ready(deployment: Deployment) -> None:
    deployment.settings["queues"] = json.dumps({"cpu_standard": {"workers": 1, "max_length": 1}})
    with deployment.http() as server:
        async with connect(server.url, "2026") as peer:
            first = await peer.start("slow", {"n": 100_000})
            await peer.poll(first, "working")
            await becomes(server, 200, "ok\n", path="/readyz")
            second = await peer.start("slow", {"n": 1})
            await becomes(server, 503, "every queue is full\n", path="/readyz")
            assert await health(server) == (200, "ok\n")
            assert await asked(server, "/readyz") == (503, told(ok=False, queued=1, running=1, full=1))
            await peer.request("tasks/cancel", {"taskId": second})
            await becomes(server, 200, "ok\n", path="/readyz")
            await peer.request("tasks/cancel", {"taskId": first})


async def test_a_supervisor_that_was_stopped_is_noticed(deployment: Deployment) -> None:
    deployment.settings["supervisor__lease_grace_s"] = "120"  # nobody takes its place meanwhile
    with deployment.http() as server:
        async with connect(server.url, "2026") as peer:
            await peer.start("slow", {"n": 100_000})
            running_supervisor(deployment).send_signal(signal.SIGSTOP)
            try:
                await becomes(server, 503, "the supervisor was stopped by a signal\n")
                assert "is stopped by a signal" in doctor(deployment)["supervisor"]
            finally:
                running_supervisor(deployment).send_signal(signal.SIGCONT)
            await becomes(server, 200, "ok\n")


@pytest.mark.whole
async def test_a_supervisor_whose_writes_are_refused_is_noticed(well: Served) -> None:
    deployment, server = well
    async with connect(server.url, "2026") as peer:
        with contextlib.closing(sqlite3.connect(deployment.folder / "tasks.db")) as database:
            database.execute(_REFUSE)
            task_id = await peer.start("slow", {"n": 1})
            await becomes(server, 503, "the store refuses what the supervisor writes\n")
            assert "cannot write" in doctor(deployment)["supervisor"]
            database.execute("DROP TRIGGER refuse")
        await peer.poll(task_id)
        await becomes(server, 200, "ok\n")


@pytest.mark.whole
async def test_tasks_are_kept_and_it_is_noticed_when_nobody_can_be_started_to_work(
    deployment: Deployment,
) -> None:
    obstacle = deployment.data_dir / "supervisor.log"
    obstacle.mkdir(parents=True)
    with deployment.http() as server:
        async with connect(server.url, "2026") as peer:
            task_id = await peer.start("slow", {"n": 1})
            await becomes(server, 503, "tasks are waiting, and no worker is running\n")
            assert services.wait_until(lambda: "nobody works" in doctor(deployment).get("supervisor", ""))
            obstacle.rmdir()
            await peer.poll(task_id)
            await becomes(server, 200, "ok\n")


async def test_a_wake_folder_that_cannot_be_made_again_is_noticed(well: Served) -> None:
    deployment, server = well
    files = deployment.folder / "tasks.db.d"
    make_bells_impossible(files)
    await becomes(server, 503, "the wake folder is missing and cannot be created\n")
    assert "news" in doctor(deployment)
    (files / "wake").unlink()
    await becomes(server, 200, "ok\n")


async def test_a_store_that_hangs_is_noticed_in_time(well: Served) -> None:
    deployment, server = well
    path = deployment.folder / "tasks.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await becomes(server, 503, "the store does not answer\n")
        other.execute("ROLLBACK")
    await becomes(server, 200, "ok\n")


async def test_a_store_that_cannot_be_read_is_noticed(damaged: Served) -> None:
    deployment, server = damaged
    assert await health(server) == (503, "the store cannot be read\n")
    assert "store" in doctor(deployment)


async def test_what_is_wrong_is_told_without_a_token_and_names_nothing(damaged: Served) -> None:
    deployment, server = damaged
    status, said = await health(server)
    assert status == 503
    assert str(deployment.folder) not in said
