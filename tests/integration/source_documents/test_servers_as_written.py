"""Our client, and the bridge, against servers that are written word for word as the documents have them."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import psutil
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from backburner.client import BackburnerClient, HandleFile, ResultLost, Update
from backburner.errors import ConfigError
from tests import warm
from tests.services import until

SERVER = Path(__file__).with_name("written_server.py")
OPTIONS = ["notify", "poll", "both"]
FRAMINGS = ["newline", "lsp"]
SYNCED = {"files_processed": 500, "files_skipped": 10, "files_updated": 490, "duration_seconds": 42.3}


def command(option: str, *words: str | Path) -> list[str]:
    return [sys.executable, str(SERVER), option, *map(str, words)]


def words_of(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def body_of(result: types.CallToolResult) -> dict[str, Any]:
    body = result.structured_content
    assert isinstance(body, dict)
    return body


def percents(updates: list[Update]) -> list[float | None]:
    return [update.progress.percent for update in updates if update.progress]


class Folder:
    """What is synced; the sync goes on when the test lets it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def open(self, *gates: int) -> None:
        for gate in gates:
            (self.path / f"open-{gate}").touch()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "folder")


def kill_server() -> None:
    (server,) = [child for child in psutil.Process().children() if str(SERVER) in child.cmdline()]
    server.kill()


async def polls(client: BackburnerClient) -> int:
    """How often the server was asked; a fast tool of such a server answers at once, without content."""
    return int(body_of(await client.call("polls"))["data"]["polls"])


# -- what comes out --------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("option", OPTIONS)
async def test_a_call_gives_the_final_result_and_tells_the_progress(
    option: str, framing: Any, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Update] = []
    server = command(option, "--framing", framing)
    async with BackburnerClient(server, framing=framing) as client:
        call = asyncio.ensure_future(
            client.call("wksm_monitor_sync", path=str(folder.path), recursive=True, on_update=told.append)
        )
        await until(lambda: 30 in percents(told))
        folder.open(1)
        await until(lambda: 60 in percents(told))
        folder.open(2)
        result = await call
    assert not result.is_error
    assert body_of(result)["data"] == SYNCED
    assert "Sync completed successfully" in words_of(result)
    assert "490" in words_of(result), "for those who see the text alone"
    assert told[-1].status == "completed"
    if option != "poll":
        said = [update.progress.message for update in told if update.progress and update.progress.message]
        files = [f"Processing {done} of 500 files..." for done in (150, 300)]
        assert said == ["Starting operation...", *files, "Processing..."]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("option", OPTIONS)
async def test_an_error_in_the_final_result_is_a_result_with_its_details(option: str) -> None:
    async with BackburnerClient(command(option)) as client:
        result = await client.call("wksm_monitor_sync", path="/no/such/forbidden")
    assert result.is_error
    assert "Failed to sync: Permission denied" in words_of(result)
    assert "Traceback" in words_of(result)
    (message,) = body_of(result)["messages"]
    assert message["details"].startswith("Traceback")


@pytest.mark.parametrize("option", OPTIONS)
async def test_a_handle_is_watched_and_asked_for_its_result_as_often_as_one_likes(
    option: str, folder: Folder
) -> None:
    async with BackburnerClient(command(option)) as client:
        handle = await client.start("wksm_monitor_sync", path=str(folder.path))
        assert handle.dialect == "two-stage"
        assert (await handle.status()).status == "working"
        folder.open(1, 2)
        updates = [update async for update in handle.watch()]
        assert [update.finished for update in updates].count(True) == 1
        result = await handle.result()
        assert body_of(result)["data"] == SYNCED
        assert await handle.result() == result
        assert (await handle.status()).finished
        again = await client.resume(handle.task_id)
        assert await again.result() == result, "the server has forgotten it; the client has not"


@pytest.mark.parametrize("option", OPTIONS)
async def test_a_result_that_comes_before_the_first_answer_is_not_lost(option: str) -> None:
    told: list[Update] = []
    async with BackburnerClient(command(option, "--early")) as client:
        handle = await client.start("count", n=2)
        assert words_of(await handle.result(told.append)) == "counted to 2"
        assert (await client.call("fail")).is_error
    if option != "poll":
        assert percents(told) == [0, 50]


async def test_many_jobs_at_once_are_told_apart() -> None:
    for option in OPTIONS:
        async with BackburnerClient(command(option)) as client:
            results = await asyncio.gather(*(client.call("count", n=n) for n in range(20)))
        assert [words_of(result) for result in results] == [f"counted to {n}" for n in range(20)]


# -- how it is asked -------------------------------------------------------------------------------


async def test_a_server_that_cannot_be_asked_is_asked_once(folder: Folder) -> None:
    async with BackburnerClient(command("notify")) as client:
        handle = await client.start("wksm_monitor_sync", path=str(folder.path))
        for _ in range(5):
            await handle.status()
        folder.open(1, 2)
        await handle.result()
        await client.call("count")
        assert await polls(client) <= 1


async def test_a_server_that_does_not_even_say_so_is_waited_for() -> None:
    async with BackburnerClient(command("notify", "--silent"), mode="legacy") as client:
        assert words_of(await client.call("count", n=2)) == "counted to 2"


async def test_a_result_that_was_told_is_not_asked_for() -> None:
    async with BackburnerClient(command("both", "--early")) as client:
        handle = await client.start("count", n=2)
        assert words_of(await handle.result()) == "counted to 2"
        assert await polls(client) == 0


async def test_a_wait_that_is_given_up_does_not_lose_the_answer_that_was_on_its_way(tmp_path: Path) -> None:
    async with BackburnerClient(command("poll", "--slow-polls", tmp_path)) as client:
        handle = await client.start("count", n=2)
        waiting = asyncio.ensure_future(handle.result())
        await until((tmp_path / "asked").exists)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (tmp_path / "answer").touch()
        assert words_of(await handle.result()) == "counted to 2"


async def test_a_framing_is_for_commands_alone() -> None:
    with pytest.raises(ConfigError, match="framing"):
        BackburnerClient("http://127.0.0.1:9/mcp", framing="lsp")
    with pytest.raises(ConfigError, match="newline, lsp"):
        BackburnerClient(command("poll"), framing="morse")  # type: ignore[arg-type]


# -- what survives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS)
async def test_a_result_that_was_told_once_is_there_in_a_restarted_program(
    option: str, tmp_path: Path
) -> None:
    handles = HandleFile(tmp_path / "handles.json")
    async with BackburnerClient(command(option), handles=handles) as client:
        handle = await client.start("count", n=2)
        async for _ in handle.watch():
            pass
        # The program ends here, before it has looked at the result.
    async with BackburnerClient(command(option), handles=handles) as client:
        (found,) = await client.open_handles()
        assert (await found.status()).status == "completed"
        assert words_of(await found.result()) == "counted to 2"
        assert await client.open_handles() == []
        assert words_of(await found.result()) == "counted to 2"


@pytest.mark.parametrize("option", OPTIONS)
async def test_a_server_that_was_restarted_has_lost_its_jobs_and_that_is_said(
    option: str, folder: Folder
) -> None:
    async with BackburnerClient(command(option)) as client:
        handle = await client.start("wksm_monitor_sync", path=str(folder.path))
        updates = handle.watch()
        async for update in updates:
            if update.progress and update.progress.percent == 30:
                break
        kill_server()
        with pytest.raises(ResultLost, match="is lost") as lost:
            await asyncio.wait_for(handle.result(), 30)
        assert handle.task_id in str(lost.value)
        assert "30%" in str(lost.value), "what the client knows"
        assert words_of(await client.call("count", n=2)) == "counted to 2", "the new one is as good"
        await updates.aclose()


async def test_a_job_of_another_connection_that_can_only_be_told_is_lost(
    tmp_path: Path, folder: Folder
) -> None:
    handles = HandleFile(tmp_path / "handles.json")
    async with BackburnerClient(command("notify"), handles=handles) as client:
        await client.start("wksm_monitor_sync", path=str(folder.path))
    async with BackburnerClient(command("notify"), handles=handles) as client:
        (found,) = await client.open_handles()
        with pytest.raises(ResultLost):
            await asyncio.wait_for(found.result(), 30)


# -- through the bridge ----------------------------------------------------------------------------


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("option", OPTIONS)
async def test_a_host_that_knows_nothing_of_it_gets_the_results_through_the_bridge(
    option: str, framing: str, folder: Folder
) -> None:
    bridge = warm.BACKBURNER
    words = ["bridge", "--framing", framing, "--patience", "200ms", "--"]
    server = StdioServerParameters(command=str(bridge), args=[*words, *command(option, "--framing", framing)])
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def come_back(host: Client, result: types.CallToolResult, job_id: str) -> types.CallToolResult:
        while job_id in words_of(result):
            result = await host.call_tool("wait_for_task", {"task_id": job_id}, progress_callback=hear)
        return result

    async with Client(server) as host:
        sync = {"path": str(folder.path)}
        handed_out = await host.call_tool("wksm_monitor_sync", sync, progress_callback=hear)
        job_id = body_of(handed_out)["data"]["job_id"]
        coming_back = asyncio.ensure_future(come_back(host, handed_out, job_id))
        await until(lambda: any(percent >= 30 for percent in heard))
        folder.open(1, 2)
        result = await coming_back
        assert "Sync completed successfully" in words_of(result)
        assert body_of(result)["data"] == SYNCED
        again = await host.call_tool("wait_for_task", {"task_id": job_id})
        assert body_of(again) == body_of(result), "the server has forgotten it; the bridge has not"

        failed = await host.call_tool("wksm_monitor_sync", {"path": "/no/such/forbidden"})
        failed = await come_back(host, failed, body_of(failed)["data"].get("job_id", "no job"))
        assert failed.is_error
        assert "Permission denied" in words_of(failed)
