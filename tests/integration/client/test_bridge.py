"""Hosts that know nothing of tasks, in front of servers that make them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from backburner.client import BackburnerClient, Bridge, TaskHandle
from backburner.errors import TaskWasCancelled
from backburner.settings import Settings
from tests import warm
from tests.deployment import ROOT, Deployment
from tests.integration.client.gates import APP, PLAIN, Gates
from tests.services import until

HOST = Path(__file__).with_name("legacy_host.py")


@pytest.mark.whole
@pytest.mark.slow
def test_a_stock_client_of_the_1x_line_works_with_slow_tools(
    deployment: Deployment, gates: Gates, legacy_python: Path
) -> None:
    gates.open(1)
    environment = {
        **deployment.environment,
        "GATES": str(gates.folder),
        "BACKBURNER_MCP__CLIENT_PATIENCE": '{"mcp": "4s"}',
    }
    bridge = [warm.PYTHON, "-m", "backburner.cli", "bridge", "--", sys.executable, str(APP), "stdio"]
    done = subprocess.run(
        [str(legacy_python), str(HOST), *bridge],
        env={**environment, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        timeout=100,
        check=True,
    )
    assert (deployment.folder / "tasks.db").exists(), "the server has the bridge's environment"
    seen = json.loads(done.stdout)
    assert seen["server"] == "client-tests"
    assert {"count", "gates", "wait_for_task", "cancel_task"} <= set(seen["tools"])
    assert seen["tools"].count("wait_for_task") == 1
    assert seen["count"][:2] == ["counted to 3", False]
    assert seen["ask"][:2] == ["Hello, Ada!", False]
    assert seen["fail"][:2] == ["it broke", True]
    # The call was held for as long as this host waits, with progress, and then handed out.
    assert "wait_for_task" in seen["held"][0]
    assert seen["held"][2]["data"]["status"] == "running"
    assert [50, 100, "gate 1"] in [[p, t, m.split(": ")[-1]] for p, t, m in seen["progress"]]
    assert seen["waited"][2]["data"]["job_id"] == seen["held"][2]["data"]["job_id"]
    assert seen["result"][:2] == ["passed 1 gates", False]
    assert seen["unknown"][1]
    assert seen["cancelled"][1] is False
    assert seen["after"][1]
    assert "cancelled" in seen["after"][0]


async def test_a_host_of_either_era_gets_an_answer_in_its_own_words(url: str, tmp_path: Path) -> None:
    for mode in ("legacy", "auto"):
        await the_host(url, mode, Gates(tmp_path / mode))


async def the_host(url: str, mode: str, gates: Gates) -> None:
    settings = Settings.load("bridge", {"mcp": {"patience_s": 0.3}}, {})
    async with Bridge(url, settings=settings).serving() as bridge, Client(bridge, mode=mode) as host:
        assert "gates" in [tool.name for tool in (await host.list_tools()).tools]
        held = await host.call_tool("gates", {"folder": str(gates.folder), "n": 0})
        assert held.structured_content is not None
        task_id, cursor = (held.structured_content["data"][key] for key in ("job_id", "cursor"))
        again = {"task_id": task_id, "cursor": cursor}
        assert f"Call wait_for_task with task_id {task_id} and cursor {cursor}" in held.content[0].text  # type: ignore[union-attr]
        waited = await host.call_tool("wait_for_task", again)
        assert waited.structured_content is not None
        assert waited.structured_content["data"]["cursor"] != cursor
        gates.end()
        result = held
        while task_id in result.content[0].text:  # type: ignore[union-attr]
            result = await host.call_tool("wait_for_task", {"task_id": task_id})
        assert result.content[0].text == "passed 0 gates"  # type: ignore[union-attr]
        assert (await host.list_resource_templates()).resource_templates
        logs = await host.read_resource(f"task://{task_id}/logs")
        assert logs.contents[0].uri == f"task://{task_id}/logs"


async def test_a_bridge_to_a_server_without_tasks_passes_its_results_on(deployment: Deployment) -> None:
    target = deployment.stdio(PLAIN)
    async with Bridge(target).serving() as bridge, Client(bridge, mode="legacy") as host:
        result = await host.call_tool("count", {"n": 2})
        assert result.content[0].text == "counted to 2"  # type: ignore[union-attr]


async def test_a_host_that_goes_away_leaves_the_task_running(url: str, gates: Gates) -> None:
    settings = Settings.load("bridge", {"mcp": {"patience_s": 0.1}}, {})
    async with (
        Bridge(url, settings=settings).serving() as bridge,
        Client(bridge, mode="legacy") as host,
    ):
        held = await host.call_tool("gates", {"folder": str(gates.folder), "n": 1})
        assert held.structured_content is not None
    gates.open(1)
    await until(lambda: gates.passed(1))
    gates.end()
    async with BackburnerClient(url) as client:
        handle = await client.resume(held.structured_content["data"]["job_id"])
        assert (await handle.result()).content[0].text == "passed 1 gates"  # type: ignore[union-attr]


async def test_a_host_whose_timer_runs_out_and_calls_again_gets_the_result_of_the_first(
    url: str, gates: Gates
) -> None:
    async with Bridge(url).serving() as bridge, Client(bridge, mode="legacy") as host:
        arguments = {"folder": str(gates.folder), "n": 1}
        with pytest.raises(MCPError, match="timed out"):
            await host.call_tool("gates", arguments, read_timeout_seconds=2)
        first = await newest_task(url)
        gates.open(1)
        gates.end()
        result = await host.call_tool("gates", arguments)
        assert result.content[0].text == "passed 1 gates"  # type: ignore[union-attr]
        assert (result.meta or {})["backburner/joined"] == first
        again = await host.call_tool("gates", arguments)
        assert not (again.meta or {}).get("backburner/joined"), "the first one's result was delivered"


async def test_a_call_that_the_user_stops_is_cancelled(url: str, gates: Gates) -> None:
    async with Bridge(url).serving() as bridge, Client(bridge, mode="legacy") as host:
        call = asyncio.ensure_future(host.call_tool("gates", {"folder": str(gates.folder), "n": 1}))
        gates.open(1)
        await until(lambda: gates.passed(1))
        call.cancel()
        async with BackburnerClient(url) as client:
            handle = await client.resume(await newest_task(url))
            with pytest.raises(TaskWasCancelled):
                await handle.result()


async def test_a_call_that_is_stopped_while_its_task_id_is_on_the_way_is_cancelled(
    url: str, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, answered, delivered = BackburnerClient.start, asyncio.Event(), asyncio.Event()

    async def delayed(*given: Any, **options: Any) -> TaskHandle:
        handle = await start(*given, **options)
        answered.set()
        await delivered.wait()
        return handle

    monkeypatch.setattr(BackburnerClient, "start", delayed)
    async with Bridge(url).serving() as bridge, Client(bridge, mode="legacy") as host:
        call = asyncio.ensure_future(host.call_tool("gates", {"folder": str(gates.folder), "n": 0}))
        await answered.wait()
        call.cancel()
        async with BackburnerClient(url) as client:
            handle = await client.resume(await newest_task(url))
            delivered.set()
            with pytest.raises(TaskWasCancelled):
                await handle.result()


async def newest_task(url: str) -> str:
    async with Client(url) as client:
        listed = await client.call_tool("list_tasks", {"limit": 1})
    assert listed.structured_content is not None
    task_id: str = listed.structured_content["tasks"][0]["task_id"]
    return task_id


@pytest.mark.whole
@pytest.mark.slow
async def test_a_typed_tool_behind_the_bridge_keeps_what_its_schema_promises(tmp_path: Path) -> None:
    typed = ROOT / "tests" / "system" / "interop" / "typed_server.py"
    with Deployment(tmp_path, (typed,)) as deployment:
        for patience, gives_up in (({"patience_s": 0.3}, False), ({"client_patience": {"mcp": 0.3}}, True)):
            settings = Settings.load("bridge", {"mcp": patience}, {})
            bridge = Bridge(deployment.stdio(), settings=settings)
            async with bridge.serving() as server, Client(server, mode="legacy") as host:
                listed = {tool.name: tool for tool in (await host.list_tools()).tools}
                assert "anyOf" not in (listed["relax"].output_schema or {})
                seconds = 60 if gives_up else 2
                result = await host.call_tool("relax", {"seconds": seconds})
                assert result.is_error is gives_up
                assert (result.structured_content is None) is gives_up
                assert ("wait_for_task" in str(result.content)) is gives_up
