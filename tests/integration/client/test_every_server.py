"""One program, and servers of every kind: what comes out is the same."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from backburner.client import AsyncTask, BackburnerClient, TasksExtension, Update
from tests import warm
from tests.deployment import Deployment
from tests.integration.client.gates import APP, PLAIN, Gates


@dataclass(frozen=True)
class Way:
    """A way to be answered: how the client is set up, and the ending of the tools' names."""

    dialect: str
    options: dict[str, Any] = field(default_factory=dict)
    ending: str = ""


OLDER = {"mode": "legacy"}
TASKLESS = {"tasks": False}
WRITTEN = APP.parents[1] / "source_documents" / "written_server.py"
SERVERS: dict[str, tuple[tuple[str, ...], list[Way]]] = {
    "backburner": (
        (str(APP),),
        [
            Way("2026-07-28"),
            Way("2025-11-25", OLDER),
            Way("two-stage", TASKLESS, "_in_background"),
            Way("two-stage", {**TASKLESS, **OLDER}, "_in_background"),
            Way("inline", TASKLESS),
            Way("inline", {**TASKLESS, **OLDER}),
            Way("task-id", {}, "_by_task_id"),
            Way("task-id", OLDER, "_by_task_id"),
        ],
    ),
    "a plain one": ((str(PLAIN),), [Way("inline"), Way("inline", OLDER)]),
}


@contextlib.contextmanager
def target_of(deployment: Deployment, command: tuple[str, ...], transport: str) -> Iterator[Any]:
    if transport == "stdio":
        yield deployment.stdio(*command)
    else:
        with deployment.http(*command) as server:
            yield server.url


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("server", SERVERS)
async def test_the_same_program_gets_the_same_from_every_server(
    deployment: Deployment, server: str, transport: str
) -> None:
    command, ways = SERVERS[server]
    deployment.settings["mcp__join_window_s"] = "0"  # all of them make the same calls at once
    with target_of(deployment, command, transport) as target:
        await asyncio.gather(*(the_program(deployment, target, way) for way in ways))


@pytest.mark.parametrize("option", ["notify", "poll", "both"])
async def test_and_from_servers_as_the_documents_write_them(deployment: Deployment, option: str) -> None:
    target = [sys.executable, str(WRITTEN), option]
    ways = [Way("two-stage"), Way("two-stage", OLDER), Way("two-stage", TASKLESS)]
    await asyncio.gather(*(the_program(deployment, target, way) for way in ways))


async def the_program(deployment: Deployment, target: Any, way: Way) -> None:
    count, fail = (f"{name}{way.ending}" for name in ("count", "fail"))
    contract = AsyncTask(tools=(count, fail), state_dir=deployment.folder / "state")
    options = {**way.options, **({"async_task": contract} if way.dialect == "task-id" else {})}
    async with BackburnerClient(target, **options) as client:
        assert text_of(await client.call(count, n=4)) == "counted to 4"

        handle = await client.start(count, {"n": 2})
        assert handle.dialect == way.dialect
        updates = [update async for update in handle.watch()]
        assert updates[-1].status == "completed"
        assert [update.finished for update in updates].count(True) == 1
        percents = [update.progress.percent or 0 for update in updates if update.progress]
        assert percents == sorted(percents)
        result = await handle.result()
        assert text_of(result) == "counted to 2"
        assert not result.is_error
        assert await handle.result() == result

        failed = await client.call(fail)
        assert failed.is_error
        assert "it broke" in text_of(failed)


async def test_a_server_that_speaks_with_headers_is_called_like_any_other(deployment: Deployment) -> None:
    command = [warm.BACKBURNER, "serve", str(APP)]
    target = StdioServerParameters(command=command[0], args=command[1:], env=deployment.environment)
    for way in (Way("2026-07-28"), Way("two-stage", {**TASKLESS, **OLDER}, "_in_background")):
        await the_program(deployment, target, replace(way, options={**way.options, "framing": "lsp"}))


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_backburner_server_without_task_tools_is_polled(
    deployment: Deployment, transport: str
) -> None:
    deployment.settings["mcp__task_tools"] = "false"
    with target_of(deployment, (str(APP),), transport) as target:
        for mode in ("auto", "legacy"):
            async with BackburnerClient(target, tasks=False, mode=mode) as client:
                handle = await client.start("count_in_background", n=2)
                assert handle.dialect == "two-stage"
                assert "counted to 2" in str((await handle.result()).structured_content)
            async with BackburnerClient(target, tasks=False, mode=mode) as client:
                again = await client.resume(handle.task_id)
                assert "counted to 2" in str((await again.result()).structured_content)


async def test_a_server_that_lists_few_task_tools_is_polled_and_cancels(deployment: Deployment) -> None:
    deployment.settings["mcp__task_tools"] = "few"
    async with BackburnerClient(deployment.stdio(APP), tasks=False) as client:
        assert "get_task_status" not in await client.connection.tools()
        handle = await client.start("count_in_background", n=2)
        assert "counted to 2" in str((await handle.result()).structured_content)
        endless = await client.start("gates_in_background", folder=str(deployment.folder), n=0)
        await endless.cancel()
        assert (await endless.result()).is_error


async def test_a_call_that_the_server_holds_tells_its_progress(deployment: Deployment) -> None:
    updates: list[Update] = []
    async with BackburnerClient(deployment.stdio(PLAIN)) as client:
        await client.call("count", on_update=updates.append)
    assert [update.progress and update.progress.percent for update in updates] == [50, None]


async def test_a_server_in_this_process_is_called_like_any_other() -> None:
    from tests.integration.client.plain_server import plain

    async with BackburnerClient(plain()) as client:
        assert text_of(await client.call("count")) == "counted to 3"


@pytest.mark.parametrize("extensions", [[], [TasksExtension()]], ids=["held", "a task"])
async def test_a_client_of_the_sdk_hears_of_progress_as_the_tool_gave_it(
    shared: Deployment, gates: Gates, extensions: list[TasksExtension]
) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if (progress, total) == (1, 2):
            gates.end()

    gates.open(1)
    async with Client(shared.stdio(), extensions=extensions) as client:
        arguments = {"folder": str(gates.folder), "n": 1}
        result = await client.call_tool("gates", arguments, progress_callback=hear)
    assert text_of(result) == "passed 1 gates"
    assert (1, 2) in [(progress, total) for progress, total, _ in heard]
    assert "gate 1" in str([message for _, _, message in heard])


async def test_a_client_of_the_sdk_waits_for_tasks_by_the_extension(shared: Deployment) -> None:
    statuses: list[str] = []

    async def note(task: dict[str, Any]) -> None:
        statuses.append(task["status"])

    async def ada(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    extension = TasksExtension(note)
    async with Client(shared.stdio(), extensions=[extension], elicitation_callback=ada) as client:
        assert text_of(await client.call_tool("count", {"n": 5})) == "counted to 5"
        assert statuses[-1] == "completed"
        assert text_of(await client.call_tool("ask", {})) == "Hello, Ada!"
        assert "input_required" in statuses
        assert (await client.call_tool("fail", {})).is_error
