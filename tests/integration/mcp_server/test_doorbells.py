"""Whatever becomes of the folder by which processes wake each other, nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backburner.core.lifecycle import State
from backburner.store import open_store
from backburner.store.protocol import Store, TaskQuery
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.services import until, wait_until

#: Far more than a look each second needs, also on a busy machine, and far less than for ever.
SOON_S = 30


def delete(folder: Path) -> None:
    """Delete a folder, whatever others put into it meanwhile."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    assert wait_until(is_gone)


def delete_the_bells(folder: Path) -> None:
    delete(folder / "wake")


def delete_the_folder(folder: Path) -> None:
    delete(folder)


def make_bells_impossible(folder: Path) -> None:
    def is_a_file() -> bool:
        delete_the_bells(folder)
        with contextlib.suppress(FileExistsError):  # somebody has made the folder again meanwhile
            (folder / "wake").touch(exist_ok=False)
        return (folder / "wake").is_file()

    assert wait_until(is_a_file)


def ring_with_rubbish(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringer:
        for bell in (folder / "wake").iterdir():
            for rubbish in (b"\xff\xfe\x00", b"", b"task:" + b"x" * 60_000):
                with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                    ringer.sendto(rubbish, str(bell))


Damage = Callable[[Path], None]
DAMAGES = (delete_the_bells, delete_the_folder, make_bells_impossible, ring_with_rubbish)


@contextlib.contextmanager
def store_of(deployment: Deployment) -> Iterator[Store]:
    """The store, as a process that is not concerned by what happens to the bells sees it."""
    with contextlib.closing(open_store(f"sqlite:///{deployment.folder}/tasks.db")) as store:
        yield store


async def damaged_while_running(
    deployment: Deployment, damage: Damage, state: State = State.RUNNING, tasks: int = 1
) -> None:
    """Do the damage as soon as so many tasks are in that state."""
    await until((deployment.folder / "tasks.db").exists)
    with store_of(deployment) as store:
        await until(lambda: len(store.page(TaskQuery(states=frozenset({state})))) == tasks)
    damage(deployment.folder / "tasks.db.d")


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_held_call_and_a_wait_end_with_their_tasks(deployment: Deployment, damage: Damage) -> None:
    deployment.settings["queues"] = '{"cpu_standard": {"workers": 2}}'
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        task = await peer.tool("submit_task", tool_name="hold", inputs={"step_s": 4})
        waiting = asyncio.ensure_future(peer.tool("wait_for_task", task_id=task["task_id"], timeout_s=60))
        call = asyncio.ensure_future(peer.call("hold", {"step_s": 4}))
        await damaged_while_running(deployment, damage, tasks=2)
        async with asyncio.timeout(SOON_S):
            assert (await call)["structuredContent"] == {"held": True}
            assert (await waiting)["state"] == "succeeded"


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("damage", DAMAGES)
async def test_answers_reach_a_tool_and_new_tasks_a_supervisor(
    deployment: Deployment, damage: Damage
) -> None:
    async with connect(deployment.stdio(), "2026") as peer:
        asking = await peer.start("ask")
        await damaged_while_running(deployment, damage, State.INPUT_REQUIRED)
        waiting = await peer.poll(asking, "input_required")
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in waiting["inputRequests"]}
        await peer.request("tasks/update", {"taskId": asking, "inputResponses": answers})
        async with asyncio.timeout(SOON_S):
            assert (await peer.poll(asking))["status"] == "completed"
            assert (await peer.poll(await peer.start("slow", {"n": 1})))["status"] == "completed"


@pytest.mark.whole
async def test_deleted_bells_are_made_again_and_ring(guarded: Deployment) -> None:
    bells, gate = guarded.folder / "tasks.db.d" / "wake", guarded.folder / "gate"
    async with connect(guarded.stdio(), "2025", tasks=False) as peer:
        call = asyncio.ensure_future(peer.call("await_gate", {"gate": str(gate)}))
        await damaged_while_running(guarded, delete_the_bells)
        # One of the server, one of the supervisor.
        await until(lambda: bells.is_dir() and len(list(bells.iterdir())) == 2)
        gate.touch()
        assert (await call)["content"] == [{"type": "text", "text": "attempt 1"}]
