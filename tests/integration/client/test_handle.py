"""What else a handle can do: logs, files, questions, and a display."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from rich.console import Console

from backburner.client import (
    BackburnerClient,
    NotOffered,
    TaskDisplay,
    TaskHandle,
    TaskProgress,
    TaskWasCancelled,
    Update,
)
from backburner.core.text import printable
from backburner.errors import DamagedDownload
from backburner.mcp.dialects.client import Subscription
from tests.deployment import Deployment
from tests.integration.client.gates import PLAIN, Gates
from tests.services import until

MODES = ["auto", "legacy"]


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def test_files_are_downloaded_and_checked(url: str, shared: Deployment, tmp_path: Path) -> None:
    """Over HTTP by their links, over stdio a range at a time."""
    async with BackburnerClient(url) as client:
        handle = await client.start("make_files")
        await handle.result()
    for number, target in enumerate((url, shared.stdio())):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with BackburnerClient(target) as client:
            await download(await client.resume(handle.task_id), folder, by_link=target == url)


async def download(handle: TaskHandle, folder: Path, *, by_link: bool) -> None:
    files = {artifact.name: artifact for artifact in await handle.artifacts()}
    assert (files["data.bin"].download_url is not None) == by_link
    for name, content in (
        ("data.bin", bytes(range(256)) * 6000),
        ("notes.txt", "größer\n".encode() * 200_000),
    ):
        path = await files[name].download(folder)
        assert path == folder / name
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest()
    damaged = replace(files["data.bin"], sha256="0" * 64)
    with pytest.raises(DamagedDownload):
        await damaged.download(folder / "damaged")
    assert sorted(os.listdir(folder)) == ["data.bin", "notes.txt"], "a damaged file is not kept"


async def test_a_question_is_answered_by_the_handle_by_the_callback_or_not_at_all(url: str) -> None:
    async def ada(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    for mode in MODES:
        async with BackburnerClient(url, mode=mode) as client:
            handle = await client.start("ask")
            asked: list[Any] = []
            async for update in handle.watch():
                for key, question in update.questions.items():
                    asked.append(question["params"]["message"])
                    await handle.answer({key: {"name": "Grace"}})
            assert asked == ["Your name?"]
            assert text_of(await handle.result()) == "Hello, Grace!"
            # A call has nobody who could answer, so it refuses.
            assert text_of(await asyncio.wait_for(client.call("ask"), 20)) == "no: cancel"
        async with BackburnerClient(url, mode=mode, elicitation_callback=ada) as client:
            assert text_of(await asyncio.wait_for(client.call("ask"), 20)) == "Hello, Ada!"


async def test_cancelling_is_told_as_such_and_harmless_when_done_twice(url: str, gates: Gates) -> None:
    for mode in MODES:
        async with BackburnerClient(url, mode=mode) as client:
            handle = await client.start("gates", folder=str(gates.folder))
            await handle.cancel()
            with pytest.raises(TaskWasCancelled):
                await handle.result()
            await handle.cancel()


@pytest.mark.parametrize(
    ("options", "tool"),
    [
        ({}, "gates"),
        ({"mode": "legacy"}, "gates"),
        ({"mode": "legacy", "tasks": False}, "gates_in_background"),
    ],
    ids=["2026", "2025", "two-stage"],
)
async def test_the_end_is_told_by_a_notification(
    shared: Deployment, gates: Gates, options: dict[str, Any], tool: str
) -> None:
    async with BackburnerClient(shared.stdio(), **options) as client:
        handle = await client.start(tool, folder=str(gates.folder), n=1)
        async with handle.subscribed() as subscription:
            gates.open(1)
            await until(lambda: gates.passed(1))
            if not options:
                await until(lambda: subscription.reliable)  # so it is not polled
            await until(lambda: not notified(subscription))  # nothing happens any more
            gates.end()
            await until(subscription.event.is_set)
        assert text_of(await handle.result()) == "passed 1 gates"


def notified(subscription: Subscription) -> bool:
    """Whether it rang since it was last looked at."""
    was_set = subscription.event.is_set()
    subscription.event.clear()
    return was_set


async def test_what_a_server_does_not_offer_is_said(deployment: Deployment) -> None:
    async with BackburnerClient(deployment.stdio(PLAIN)) as client:
        handle = await client.start("count")
        with pytest.raises(NotOffered):
            [line async for line in handle.logs()]
        with pytest.raises(NotOffered):
            await handle.artifacts()


async def test_the_display_shows_the_bar_the_phase_the_time_left_and_the_log(url: str, gates: Gates) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    async with BackburnerClient(url) as client:
        handle = await client.start("gates", folder=str(gates.folder), n=1)
        gates.open(1)
        with TaskDisplay(console) as display:
            showing = asyncio.ensure_future(display.result(handle))
            await until(lambda: "gate 1" in screen.getvalue() and "step 1" in screen.getvalue())
            shown = screen.getvalue()
            gates.end()
            assert text_of(await showing) == "passed 1 gates"
    bar = next(line for line in shown.splitlines() if "gate 1" in line)
    assert "gates" in bar
    assert "━" in bar
    assert "50%" in bar
    assert "left" in bar
    assert "100%" in screen.getvalue()
    assert "completed" in screen.getvalue()


def test_hostile_text_does_not_steer_the_terminal() -> None:
    assert "\x1b" not in printable("\x1b]0;title\x07[red]text")


def test_updates_that_tell_the_same_have_the_same_fingerprint() -> None:
    def update(eta_s: float, percent: float = 10) -> Update:
        progress = TaskProgress(percent, "phase", "message", eta_s)
        return Update("t", "working", f"phase, about {eta_s} s left", progress)

    assert update(5).fingerprint == update(4).fingerprint
    assert update(5).fingerprint != update(5, percent=20).fingerprint
    assert update(5).fingerprint != Update("t", "completed").fingerprint
