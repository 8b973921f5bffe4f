"""Calls that are held for a short time before they become tasks of 2026-07-28."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.integration.mcp_server.lasting import Lasting
from tests.services import wait_until

SERVER = Path(__file__).with_name("grace_server.py")
JOINED = "backburner/joined"
NOTE = "com.anthropic/agent-task"


@pytest.fixture
def shared_grace(lasting: Lasting) -> Iterator[str]:
    """The address of a server that other tests use as well."""
    with lasting.deployment(SERVER) as made:
        yield lasting.url(made)


@pytest.fixture
def all_hosts(tmp_path: Path) -> Iterator[Deployment]:
    """A deployment whose calls have a long grace time, whatever the host."""
    with Deployment(tmp_path, (SERVER,), {"mcp__task_grace_s": "60", "mcp__patience_s": "60"}) as made:
        yield made


async def until(condition: Callable[[], bool]) -> None:
    assert await asyncio.to_thread(wait_until, condition)


async def nap(peer: Peer, file: Path, seconds: float) -> dict[str, Any]:
    return await peer.call("nap", {"file": str(file), "seconds": seconds})


async def test_a_short_call_is_answered_with_its_result_where_a_task_costs_the_host_a_turn(
    shared_grace: str, tmp_path: Path
) -> None:
    file = tmp_path / "short"
    async with (
        connect(shared_grace, "2026", name="claude-code", version="2.1.301") as claude,
        connect(shared_grace, "2026", name="another") as another,
    ):
        created = await nap(another, file, 0.1)
        assert created["resultType"] == "task"
        await another.poll(created["taskId"])
        answers = [await nap(claude, file, 0.1), await nap(claude, file, 0.1)]
        assert [(one["resultType"], one["content"][0]["text"]) for one in answers] == [
            ("complete", "slept")
        ] * 2
        assert all(JOINED not in one["_meta"] for one in answers)
        assert len(file.read_text().splitlines()) == 3


async def test_calls_that_follow_one_that_became_a_task_become_tasks_at_once(
    shared_grace: str, tmp_path: Path
) -> None:
    async with connect(shared_grace, "2026", name="claude-code", version="2.1.304") as peer:

        async def kinds() -> tuple[str, str]:
            return (await peer.call("report"))["resultType"], (await nap(peer, tmp_path / "n", 0))[
                "resultType"
            ]

        # On a busy machine the second call may come too late to be of the same turn.
        assert ("task", "task") in [await kinds() for _ in range(5)]


async def test_a_call_becomes_a_task_at_once_if_it_asks(shared_grace: str) -> None:
    async with connect(shared_grace, "2026", name="claude-code", version="2.1.302") as peer:
        asking = await peer.call("ask")
        assert asking["resultType"] == "task"
        shown = await peer.poll(asking["taskId"], "input_required")
        answer = {"action": "accept", "content": {"name": "Ada"}}
        answers = dict.fromkeys(shown["inputRequests"], answer)
        await peer.request("tasks/update", {"taskId": asking["taskId"], "inputResponses": answers})
        done = await peer.poll(asking["taskId"])
        assert done["result"]["content"][0]["text"] == "Hello, Ada!"


async def test_a_call_that_should_take_longer_becomes_a_task_with_a_note_for_the_model(
    shared_grace: str,
) -> None:
    async with connect(shared_grace, "2026", name="claude-code", version="2.1.303") as peer:
        created = await peer.call("report")
        said = "About 3 min, as the tool's author says. Nothing to call meanwhile."
        assert created["_meta"][NOTE] == {"modelImmediateResponse": said}
        assert NOTE not in (await peer.poll(created["taskId"])).get("_meta", {})


async def test_a_stop_within_the_grace_time_cancels_the_task(all_hosts: Deployment, tmp_path: Path) -> None:
    async with connect(all_hosts.stdio(), "2026") as peer:
        file = tmp_path / "stopped"
        call = asyncio.ensure_future(nap(peer, file, 60))
        await until(file.exists)
        call.cancel()
        await until((tmp_path / "stopped.killed").exists)
        # The setting is for all hosts, but not for tools that are tasks always.
        assert (await nap(peer, tmp_path / "short", 0))["resultType"] == "complete"
        assert (await peer.call("must"))["resultType"] == "task"


async def test_a_call_whose_client_leaves_within_the_grace_time_is_joined(
    all_hosts: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "left"
    with all_hosts.http() as server:
        async with connect(server.url, "2026") as peer:
            call = asyncio.ensure_future(nap(peer, file, 3))
            await until(file.exists)
            call.cancel()
            await asyncio.wait([call])
            again = await nap(peer, file, 3)
    assert (again["resultType"], JOINED in again["_meta"]) == ("complete", True)
    assert file.read_text() == "ran\n"
