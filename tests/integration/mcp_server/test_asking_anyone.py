"""Questions of tools that ask anyone: a client that cannot be asked leaves them to whoever can."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.integration.mcp_server.lasting import Lasting

pytestmark = pytest.mark.slow

ADA = {"name": "Ada"}


@pytest.fixture(params=["own", "mcpserver"])
def deployment(lasting: Lasting, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    with lasting.deployment(Path(__file__).with_name("anyone_server.py"), request.param) as made:
        yield made


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_client_that_cannot_be_asked_gets_a_handle_and_its_model_can_answer(
    deployment: Deployment, era: str
) -> None:
    async with connect(deployment.stdio(), era, tasks=False, elicit=None) as peer:
        handed_out = await peer.call("book")
        text = "\n".join(block["text"] for block in handed_out["content"])
        assert "Who books?" in text
        assert "answer_task" in text
        (task,) = (await peer.tool("list_tasks", limit=1))["tasks"]
        waiting = await peer.tool("wait_for_task", task_id=task["task_id"])
        assert (waiting["state"], len(waiting["questions"])) == ("input_required", 1)
        wrong = await peer.call("answer_task", {"task_id": task["task_id"], "content": {"name": 3}})
        assert wrong["isError"] is True
        # With the cursor, a question that was told before does not end the wait.
        told = {"task_id": task["task_id"], "cursor": waiting["cursor"]}
        waits = asyncio.ensure_future(peer.tool("wait_for_task", **told))
        answered = await peer.tool("answer_task", task_id=task["task_id"], content=ADA)
        assert answered["state"] in ("running", "succeeded")
        done = await waits
        assert (done["state"], "Ada" in str(done["result"])) == ("succeeded", True)
        late = await peer.call("answer_task", {"task_id": task["task_id"], "content": ADA})
        assert "asks nothing" in late["content"][0]["text"]


async def test_a_task_of_a_client_that_cannot_be_asked_waits(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2025", elicit=None) as peer:
        task_id = await peer.start("book")
        waiting = await peer.poll(task_id, "input_required")
        assert waiting["status"] == "input_required"
    async with connect(deployment.stdio(), "2026", elicit=None) as peer:  # another one
        await peer.tool("answer_task", task_id=task_id, content=ADA)
        assert (await peer.poll(task_id))["status"] == "completed"


async def test_a_client_that_can_be_asked_is_asked(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2025", tasks=False) as peer:
        assert "Ada" in str((await peer.call("book"))["content"])


async def test_a_model_cannot_answer_for_a_client_that_is_asked_alone(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2025", tasks=False, elicit=None) as peer:
        refused = await peer.call("confirm")
        assert refused["content"][0]["text"] == "cancel"
        (task,) = (await peer.tool("list_tasks", limit=1))["tasks"]
        answered = await peer.call("answer_task", {"task_id": task["task_id"]})
        assert "asks its client" in answered["content"][0]["text"]


async def test_servers_without_such_tools_list_no_tool_for_answers(server: str) -> None:
    async with connect(server, "2025", tasks=False) as peer:
        listed = await peer.request("tools/list")
    assert "answer_task" not in {tool["name"] for tool in listed["tools"]}
