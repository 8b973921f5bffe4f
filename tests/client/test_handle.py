"""What else a handle can do: logs, files, questions, and a display."""

from __future__ import annotations

import asyncio
import hashlib
import io
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from rich.console import Console

from backburner.client import (
    BackburnerClient,
    NotOffered,
    TaskDisplay,
    TaskProgress,
    TaskWasCancelled,
    Update,
)
from backburner.client.display import plain
from backburner.client.errors import DamagedDownload
from tests.client.stage import SEED, Gates, Stage, until

MODES = ["auto", "legacy"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_files_are_downloaded_and_checked(stage: Stage, tmp_path: Path, transport: str) -> None:
    """Over HTTP by their links, over stdio a range at a time."""
    with stage.http() as server:
        async with BackburnerClient(server.url if transport == "http" else stage.stdio()) as client:
            handle = await client.start("make_files")
            await handle.result()
            files = {artifact.name: artifact for artifact in await handle.artifacts()}
            assert (files["data.bin"].download_url is not None) == (transport == "http")
            (tmp_path / "to").mkdir()
            for name, content in (
                ("data.bin", bytes(range(256)) * 6000),
                ("notes.txt", "größer\n".encode() * 200_000),
            ):
                path = await files[name].download(tmp_path / "to")
                assert path == tmp_path / "to" / name
                assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest()
            damaged = type(files["data.bin"])(**{**vars(files["data.bin"]), "sha256": "0" * 64})
            with pytest.raises(DamagedDownload):
                await damaged.download(tmp_path / "damaged")
            assert not (tmp_path / "damaged").exists()
            assert len(list((tmp_path / "to").iterdir())) == 2


@pytest.mark.parametrize("mode", MODES)
async def test_a_question_is_answered_by_the_handle(stage: Stage, mode: str) -> None:
    with stage.http() as server:
        async with BackburnerClient(server.url, mode=mode) as client:
            handle = await client.start("ask")
            asked: list[Any] = []
            async for update in handle.watch():
                for key, question in update.questions.items():
                    asked.append(question["params"]["message"])
                    await handle.answer({key: {"name": "Ada"}})
            assert asked == ["Your name?"]
            assert (await handle.result()).content[0].text == "Hello, Ada!"  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", MODES)
async def test_a_question_is_answered_by_the_callback_and_refused_without_one(
    stage: Stage, mode: str
) -> None:
    async def ada(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    with stage.http() as server:
        for callback, text in ((ada, "Hello, Ada!"), (None, "no: cancel")):
            async with BackburnerClient(server.url, mode=mode, elicitation_callback=callback) as client:
                result = await asyncio.wait_for(client.call("ask"), 20)
                assert result.content[0].text == text  # type: ignore[union-attr]


@pytest.mark.parametrize("options", [{}, {"mode": "legacy"}], ids=MODES)
async def test_cancelling_is_told_as_such(stage: Stage, gates: Gates, options: dict[str, Any]) -> None:
    with stage.http() as server:
        async with BackburnerClient(server.url, **options) as client:
            handle = await client.start("gates", folder=str(gates.folder))
            await handle.cancel()
            with pytest.raises(TaskWasCancelled):
                await handle.result()
            await handle.cancel()


async def test_what_a_server_does_not_offer_is_said(stage: Stage) -> None:
    async with BackburnerClient(stage.stdio(str(SEED), "inline")) as client:
        handle = await client.start("count")
        with pytest.raises(NotOffered):
            [line async for line in handle.logs()]
        with pytest.raises(NotOffered):
            await handle.artifacts()


async def test_the_display_shows_the_bar_the_phase_the_time_left_and_the_log(
    stage: Stage, gates: Gates
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    with stage.http() as server:
        async with BackburnerClient(server.url) as client:
            handle = await client.start("gates", folder=str(gates.folder), n=1)
            gates.open(1)
            with TaskDisplay(console) as display:
                showing = asyncio.ensure_future(display.result(handle))
                await until(lambda: "gate 1" in screen.getvalue() and "step 1" in screen.getvalue())
                shown = screen.getvalue()
                gates.end()
                assert (await showing).content[0].text == "passed 1 gates"  # type: ignore[union-attr]
    bar = next(line for line in shown.splitlines() if "gate 1" in line)
    assert "gates" in bar
    assert "━" in bar
    assert "50%" in bar
    assert "left" in bar
    assert "100%" in screen.getvalue()
    assert "completed" in screen.getvalue()


def test_hostile_text_does_not_steer_the_terminal() -> None:
    assert "\x1b" not in plain("\x1b]0;title\x07[red]text")


def test_updates_that_tell_the_same_have_the_same_fingerprint() -> None:
    def update(eta_s: float, percent: float = 10) -> Update:
        progress = TaskProgress(percent, "phase", "message", eta_s)
        return Update("t", "working", f"phase, about {eta_s} s left", progress)

    assert update(5).fingerprint == update(4).fingerprint
    assert update(5).fingerprint != update(5, percent=20).fingerprint
    assert update(5).fingerprint != Update("t", "completed").fingerprint
