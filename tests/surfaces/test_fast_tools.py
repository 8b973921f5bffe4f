"""A fast tool must not pay for the slow ones: its calls with Backburner attached, against those without."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

from backburner import Backburner
from tests.surfaces.harness import Deployment
from tests.surfaces.test_http import served

pytestmark = pytest.mark.slow

_CALLS, _TRIES, _MOST = {"memory": 1000, "http": 250}, 5, 1.1


def make_server() -> MCPServer[Any]:
    mcp: MCPServer[Any] = MCPServer("fast", log_level="ERROR")

    @mcp.tool()
    def fast(x: int = 1) -> str:
        return f"fast {x}"

    return mcp


async def ratio(plain: Client, attached: Client, calls: int) -> float:
    """How much longer the median call takes with Backburner. The calls alternate: noise meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(calls):
        for took, client in zip(times, (plain, attached), strict=True):
            began = time.perf_counter()
            await client.call_tool("fast", {"x": number})
            took.append(time.perf_counter() - began)
    return statistics.median(times[1]) / statistics.median(times[0])


@contextlib.asynccontextmanager
async def target(server: MCPServer[Any], transport: str) -> AsyncIterator[Any]:
    if transport == "memory":
        yield server
    else:
        async with served(server.streamable_http_app()) as url:
            yield f"{url}/mcp"


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_fast_tool_costs_at_most_a_tenth_more(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, transport: str, mode: Any
) -> None:
    monkeypatch.setenv("BACKBURNER_STORE", f"sqlite:///{deployment.folder}/tasks.db")
    attached_to = make_server()
    bb = Backburner.attach(attached_to, slow=["slow_*"])
    bb.start = lambda: None  # type: ignore[method-assign]
    async with (
        target(make_server(), transport) as one,
        target(attached_to, transport) as two,
        Client(one, mode=mode) as plain,
        Client(two, mode=mode) as attached,
    ):
        # The first good one of some tries: what others do on the machine only ever makes it worse.
        ratios: list[float] = []
        while len(ratios) < _TRIES and (not ratios or ratios[-1] > _MOST):
            ratios.append(await ratio(plain, attached, _CALLS[transport]))
    bb.close()
    assert min(ratios) <= _MOST
