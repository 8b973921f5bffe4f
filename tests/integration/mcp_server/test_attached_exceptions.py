"""What an attached tool raises is known to its task: its type, its traceback, and to the retry policy."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backburner.mcp.transport.auth import hash_token
from backburner.store import open_store
from tests import warm
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


async def test_what_its_framework_hides_from_clients_is_shown_to_operators_alone(
    deployment: Deployment,
) -> None:
    tokens = {"client": "", "operator": "backburner:read-all"}
    token_file = deployment.folder / "tokens"
    lines = [f"{name} {hash_token(name)} {scope} owner=ann\n" for name, scope in tokens.items()]
    token_file.write_text("".join(lines))
    deployment.settings["http__auth__tokens"] = str(token_file)
    with deployment.http() as server:
        page = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
        async with connect(server.url, "2026", token="client", extensions=page, check=False) as peer:
            task_id = await peer.start("crashes")
            seen: list[Any] = [await peer.poll(task_id)]
            for tool in ("get_task_status", "get_task_result", "tail_task_logs", "wait_for_task"):
                seen.append(await peer.call(tool, {"task_id": task_id}))
            seen.append(await peer.call("get_task_result", {"task_id": task_id, "path": "$.error"}))
            seen.append(await peer.call("backburner_card_look", {"task_id": task_id}))
            seen.append(await peer.request("tools/poll_result", {"job_id": task_id}))
            for part in ("logs", "result"):
                seen.append(await peer.request("resources/read", {"uri": f"task://{task_id}/{part}"}))
            seen.append(peer.wire.notifications)
        task = f"{server.address}/api/v1/tasks/{task_id}"
        for path in ("", "/logs", "/result"):
            for_client, for_operator = (
                httpx2.get(task + path, headers={"Authorization": f"Bearer {token}"}).text for token in tokens
            )
            seen.append(for_client)
            assert "the line went dead" in for_operator
    assert [one for one in seen if "the line went dead" in str(one) or "ConnectionReset" in str(one)] == []

    command = [warm.PYTHON, "-m", "backburner.cli", "logs", task_id, "--all-owners", "-t", str(SERVER)]
    logs = await asyncio.to_thread(
        subprocess.run, command, env=deployment.environment, capture_output=True, text=True, check=True
    )
    assert logs.stdout.count("ConnectionResetError: the line went dead") == 1


async def test_it_is_tried_again_by_the_type_of_what_it_raised(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2026", tasks=False) as peer:
        by_class = await peer.call("works_the_second_time", {"file": str(deployment.folder / "class")})
        assert by_class["content"][0]["text"] == "attempt 2"
        by_name = await peer.call("by_name", {"file": str(deployment.folder / "name")})
        assert by_name["content"][0]["text"] == "attempt 2"
        other = await peer.call("of_another_kind", {"file": str(deployment.folder / "other")})
        assert other["isError"] is True
