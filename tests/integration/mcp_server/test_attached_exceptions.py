"""What an attached tool raises is known to its task: its type, its traceback, and to the retry policy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner.stores import open_store
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.integration.mcp_server.lasting import Lasting

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("raising_attached.py")


@pytest.fixture(params=["mcpserver", "fastmcp"])
def deployment(lasting: Lasting, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    with lasting.deployment(SERVER, request.param) as made:
        yield made


@pytest.mark.whole(but_first=1)
async def test_its_task_has_the_type_and_the_traceback_and_its_client_the_same_result(
    deployment: Deployment,
) -> None:
    async with connect(deployment.stdio(), "2026") as peer:
        task_id = await peer.start("crashes")
        told = (await peer.poll(task_id))["result"]
        polled = await peer.request("tools/poll_result", {"job_id": task_id})
    assert told["isError"] is True
    # A framework may hide from clients what went wrong in a tool, and no way round it is opened.
    assert "deep_in_the_tool" not in f"{told} {polled}"

    with contextlib.closing(open_store(f"sqlite:///{deployment.folder}/tasks.db")) as store:
        error = store.get(task_id).error
    assert error is not None
    assert (error.type, error.exception) == ("tool_error", "ConnectionResetError")
    assert "in deep_in_the_tool" in error.details


async def test_it_is_tried_again_by_the_type_of_what_it_raised(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2026", tasks=False) as peer:
        by_class = await peer.call("works_the_second_time", {"file": str(deployment.folder / "class")})
        assert by_class["content"][0]["text"] == "attempt 2"
        by_name = await peer.call("by_name", {"file": str(deployment.folder / "name")})
        assert by_name["content"][0]["text"] == "attempt 2"
        other = await peer.call("of_another_kind", {"file": str(deployment.folder / "other")})
        assert other["isError"] is True
