"""A client whose timer runs out at a limit that nobody knew: the next call is answered before that."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from backburner import Backburner, open_store
from backburner.mcp.client_timeouts import TimeoutPolicy
from backburner.mcp.results import Client as Host
from tests import warm
from tests.deployment import Deployment, HttpServer
from tests.integration.mcp_server.harness import SCRIPT
from tests.services import until

#: What the client's own timer is set to. The table says 60 s for it, so its calls are held for longer.
#: A fifth of it is what a loaded machine may be late.
LIMIT_S = 12.0
INPUTS: dict[str, Any] = {"n": 6000, "step_s": 0.1}
HOST = types.Implementation(name="zed", version="7.1")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path, (SCRIPT,), variables={"SERVER_KIND": "own"}) as made:
        yield made


def backburner(deployment: Deployment, *words: str) -> Any:
    """What the command line says of the store, as JSON."""
    command = [warm.BACKBURNER, *words, "--json"]
    where: dict[str, Any] = {"env": deployment.environment, "cwd": deployment.folder}
    done = subprocess.run(command, **where, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@contextlib.asynccontextmanager
async def hurried(target: Deployment | HttpServer) -> AsyncIterator[Client]:
    """A client of the Python SDK with a timer; over stdio it has a server process of its own."""
    if isinstance(target, Deployment):
        transport: Any = stdio_client(target.stdio())
    else:
        transport = streamable_http_client(target.url)
    async with Client(transport, mode="legacy", client_info=HOST) as client:
        yield client


async def call(client: Client, n: int = INPUTS["n"]) -> str:
    """Call a tool that takes longer than anybody waits; gives the text of the answer."""
    result = await client.call_tool("slow", {**INPUTS, "n": n}, read_timeout_seconds=LIMIT_S)
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


async def learned_by(deployment: Deployment) -> None:
    """Wait until a server has heard of a time-out: the client tells of it when its call is over already."""
    with contextlib.closing(open_store(f"sqlite:///{deployment.folder}/tasks.db")) as store:
        await until(store.time_outs)


@pytest.mark.whole
@pytest.mark.slow
async def test_after_one_time_out_calls_are_answered_before_the_limit_in_every_process_until_it_is_reset(
    deployment: Deployment,
) -> None:
    async with hurried(deployment) as client:
        with pytest.raises(MCPError, match="timed out"):
            await call(client)
        await learned_by(deployment)
        assert "goes on in the background" in await call(client)
    async with hurried(deployment) as client:
        assert "goes on in the background" in await call(client)
    (learned,) = backburner(deployment, "status")["clients"]
    assert (learned["name"], learned["version"], learned["transport"]) == ("zed", "7.1", "stdio")
    assert (learned["source"], learned["time_outs"], learned["restarts"]) == ("learned", 1, False)
    assert LIMIT_S / 2 < learned["wall_s"] < 2 * LIMIT_S
    (told,) = (one for one in backburner(deployment, "doctor")["findings"] if one["check"] == "clients")
    assert "backburner client reset zed" in told["advice"]
    assert backburner(deployment, "client", "reset", "somebody-else") == {"forgotten": 0}
    assert backburner(deployment, "client", "reset", "zed") == {"forgotten": 1}
    async with hurried(deployment) as client:
        with pytest.raises(MCPError, match="timed out"):
            await call(client, INPUTS["n"] + 1)  # the same as before would join, and be known to take long


@pytest.mark.whole
@pytest.mark.slow
async def test_over_http_what_a_wait_taught_one_server_is_known_to_another_on_its_store(
    deployment: Deployment,
) -> None:
    with deployment.http() as first, deployment.http() as second:
        async with hurried(first) as one, hurried(second) as other:
            await other.list_tools()
            submitted = await one.call_tool("submit_task", {"tool_name": "slow", "inputs": INPUTS})
            assert submitted.structured_content is not None
            task = {"task_id": submitted.structured_content["task_id"]}
            with pytest.raises(MCPError, match="timed out"):
                await one.call_tool("wait_for_task", task, read_timeout_seconds=LIMIT_S)
            await learned_by(deployment)
            waited = await one.call_tool("wait_for_task", task, read_timeout_seconds=LIMIT_S)
            assert waited.structured_content is not None
            assert not waited.structured_content["finished"]
            assert "goes on in the background" in await call(one)
            assert "goes on in the background" in await call(other)
    (learned,) = backburner(deployment, "status")["clients"]
    assert (learned["transport"], learned["source"]) == ("http", "learned")


async def test_an_answer_that_arrived_later_disproves_a_limit_and_accidents_teach_nothing(
    tmp_path: Path,
) -> None:
    host, strange = Host("host", "1.0"), Host("h\x00st", "1.0")
    with contextlib.closing(Backburner("lab", store=f"sqlite:///{tmp_path}/tasks.db")) as app:
        patience = TimeoutPolicy(app.settings, app)
        await patience.learn(host, 0.3, 0.3)
        await patience.learn(strange, 5, 5)
        await patience.learn(Host("h" * 101, "1.0"), 5, 5)
        assert app.store.time_outs() == []
        await patience.learn(host, 5, 5)
        assert patience.limits(host).hold_s(with_progress=True) == 4
        assert patience.is_known_to_give_up(host)
        assert patience.limits(Host("host", "1.1")).source == "default"
        assert patience.limits(Host("host", "1.0", over_http=True)).source == "default"
        await patience.delivered(host, 5.1)
        assert patience.limits(host).source == "learned"
        await patience.delivered(host, 9)
        assert patience.limits(host).source == "default"
        assert app.store.time_outs() == []
