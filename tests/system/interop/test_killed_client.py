"""What a client started outlives it, and its server."""

import asyncio
import contextlib
import sys
from typing import Any

import psutil
import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.services import ended
from tests.system.interop import environment

pytestmark = pytest.mark.slow


def start_and_be_killed(deployment: Deployment, doomed: str) -> str:
    """A client over stdio starts a task, and while that runs the `doomed` are killed; gives the task's id."""
    deployment.interpreter = sys.executable  # its processes are looked for below
    client = deployment.run(environment.CLIENTS / "leaving.py", *deployment.command("stdio"))
    assert client.stdout is not None
    task_id = client.stdout.readline().strip()
    assert task_id
    (server,) = psutil.Process(client.pid).children()
    victims: list[psutil.Process] = {
        "client": [],
        "client and server": [server],
        "every process": [server, *server.children(recursive=True)],
    }[doomed]
    client.kill()
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):  # it died with its parent
            victim.kill()
    client.wait()
    client.stdout.close()
    # A server whose client is gone goes by itself.
    assert all(ended(process) for process in [server, *victims])
    return task_id


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(
    ("era", "doomed", "attempts"),
    [
        ("2025", "client", 1),
        ("2026", "client", 1),
        ("2026", "client and server", 1),
        # With the supervisor the runner is gone, so the task begins again.
        ("2026", "every process", 2),
    ],
)
def test_a_new_client_finds_the_task_of_a_killed_one(
    deployment: Deployment, era: str, doomed: str, attempts: int
) -> None:
    task_id = start_and_be_killed(deployment, doomed)

    async def find_and_wait() -> dict[str, Any]:
        async with connect(deployment.stdio(), era) as peer:
            found = await peer.tool("list_tasks")
            assert [task["task_id"] for task in found["tasks"]] == [task_id]
            # One call waits no longer than the server thinks that its client does.
            while not (await peer.tool("wait_for_task", task_id=task_id, timeout_s=30))["finished"]:
                pass
            result: dict[str, Any] = await peer.tool("get_task_result", task_id=task_id)
            return {**await peer.tool("get_task_status", task_id=task_id), **result}

    found = asyncio.run(asyncio.wait_for(find_and_wait(), 60))
    assert (found["state"], found["result"]) == ("succeeded", "slow done n=150")
    assert found["attempt"] == attempts
