"""What a task that is not finished has made can be listed and read, by its owner."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from backburner.client import BackburnerClient
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.integration.mcp_server.test_auth import token_file
from tests.integration.mcp_server.test_task_tools import called

MADE = b"so far, so good"


async def running(peer: Peer, deployment: Deployment) -> str:
    """A task that has made a file and waits for its gate."""
    inputs = {"gate": str(deployment.folder / "gate")}
    task_id: str = (await peer.tool("submit_task", tool_name="await_gate", inputs=inputs))["task_id"]
    while not (await peer.tool("list_task_artifacts", task_id=task_id))["artifacts"]:
        await peer.tool("wait_for_task", task_id=task_id, timeout_s=0.1)
    return task_id


async def read(peer: Peer, uri: str) -> dict[str, Any]:
    (content,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
    return content  # type: ignore[no-any-return]


async def ended(peer: Peer, deployment: Deployment, task_id: str) -> dict[str, Any]:
    (deployment.folder / "gate").touch()
    done: dict[str, Any] = await peer.tool("wait_for_task", task_id=task_id, timeout_s=60)
    return done


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_a_running_task_s_artifacts_are_listed_and_read_over_stdio(
    guarded: Deployment, era: str
) -> None:
    async with connect(guarded.stdio(), era, tasks=False) as peer:
        task_id = await running(peer, guarded)
        listed = await called(peer, "list_task_artifacts", task_id=task_id)
        assert listed["state"] == "running"
        (artifact,) = listed["artifacts"]
        assert (artifact["name"], artifact["size_bytes"]) == ("so-far.txt", len(MADE))
        assert (await read(peer, artifact["resource"]))["text"] == MADE.decode()
        content = await read(peer, f"task://{task_id}/artifacts")
        assert content["mimeType"] == "application/json"
        assert json.loads(content["text"]) == listed
        done = await ended(peer, guarded, task_id)
        kept = {**artifact, "expires_at": done["artifacts"][0]["expires_at"]}
        assert (artifact["expires_at"], done["artifacts"]) == (None, [kept])
        again = await called(peer, "list_task_artifacts", task_id=task_id)
        assert again == {**listed, "state": "succeeded", "artifacts": [kept]}


async def test_a_task_that_has_made_nothing_has_an_empty_list(guarded: Deployment) -> None:
    async with connect(guarded.stdio(), "2025", tasks=False) as peer:
        task_id = (await peer.tool("submit_task", tool_name="count"))["task_id"]
        assert (await called(peer, "list_task_artifacts", task_id=task_id))["artifacts"] == []
        assert json.loads((await read(peer, f"task://{task_id}/artifacts"))["text"])["artifacts"] == []


async def test_they_are_their_owner_s_alone(guarded: Deployment) -> None:
    tokens = token_file(guarded.folder, alice="token-of-alice", bob="token-of-bob")
    guarded.settings |= {"http__auth__tokens": tokens}
    with guarded.http() as server:
        async with (
            connect(server.url, "2025", token="token-of-alice") as alice,
            connect(server.url, "2026", token="token-of-bob") as bob,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            task_id = await running(alice, guarded)
            (artifact,) = (await alice.tool("list_task_artifacts", task_id=task_id))["artifacts"]
            assert (await http.get(artifact["download_url"])).content == MADE

            refused = await bob.call("list_task_artifacts", {"task_id": task_id})
            assert refused["structuredContent"]["error"]["code"] == "task_not_found"
            for uri in (artifact["resource"], f"task://{task_id}/artifacts"):
                with pytest.raises(MCPError, match="Resource not found"):
                    await bob.request("resources/read", {"uri": uri})
            await ended(alice, guarded, task_id)


async def test_our_client_gets_them_while_the_task_runs(guarded: Deployment) -> None:
    async with BackburnerClient(guarded.stdio()) as client:
        handle = await client.start("await_gate", {"gate": str(guarded.folder / "gate")})
        while not (made := await handle.artifacts()):
            await handle.status()
        path = await made[0].download(guarded.folder / "copy")
        assert path.read_bytes() == MADE
        assert not (await handle.status()).finished
        (guarded.folder / "gate").touch()
        await handle.result()
