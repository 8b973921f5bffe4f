"""Handles outlive connections, servers and programs; nothing is lost and nothing is told twice."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from backburner.client import BackburnerClient, ConnectionLost, HandleFile, TaskHandle, Update
from backburner.client.handle import OpenHandle
from tests.deployment import Deployment
from tests.integration.client.gates import APP, Gates
from tests.services import until, wait_until

WATCHER = Path(__file__).with_name("watcher.py")
MODES = ["auto", "legacy"]


class Seen:
    """What a watch has told so far, by the message of its progress."""

    def __init__(self, handle: TaskHandle) -> None:
        self.messages: list[str] = []
        self.lines: list[str] = []
        self.done = asyncio.gather(self._watch(handle), self._read(handle))

    async def _watch(self, handle: TaskHandle) -> None:
        async for update in handle.watch():
            self._note(update)

    async def _read(self, handle: TaskHandle) -> None:
        async for line in handle.logs(follow=True):
            self.lines.append(line.message)

    def _note(self, update: Update) -> None:
        if update.finished:
            self.messages.append(update.status)
        elif update.progress and update.progress.message:
            self.messages.append(update.progress.message)

    async def gate(self, i: int) -> None:
        await until(lambda: f"gate {i}" in self.messages)


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.slow)])
async def test_a_watch_goes_on_through_a_server_that_is_killed_and_restarted(
    deployment: Deployment, gates: Gates, mode: str
) -> None:
    with deployment.http() as server:
        async with BackburnerClient(server.url, mode=mode) as client:
            handle = await client.start("gates", folder=str(gates.folder), n=4)
            seen = Seen(handle)
            gates.open(1)
            await seen.gate(1)
            server.kill()
            gates.open(2)  # the task goes on while its server is down
            await until(lambda: gates.passed(2))
            server.start()
            await seen.gate(2)
            gates.open(3)
            await seen.gate(3)
            server.kill()
            server.start()
            gates.open(4)
            await seen.gate(4)
            gates.end()
            await seen.done
            assert (await handle.result()).content[0].text == "passed 4 gates"  # type: ignore[union-attr]
    assert seen.messages == ["gate 1", "gate 2", "gate 3", "gate 4", "completed"]
    assert seen.lines == ["step 1", "step 2", "step 3", "step 4"]


async def test_a_server_that_was_started_by_the_client_is_started_again(
    deployment: Deployment, gates: Gates
) -> None:
    async with BackburnerClient(deployment.stdio()) as client:
        handle = await client.start("gates", folder=str(gates.folder), n=2)
        seen = Seen(handle)
        gates.open(1)
        await seen.gate(1)
        for child in psutil.Process().children():
            if child.cmdline()[-2:] == [str(APP), "stdio"]:
                child.kill()
        gates.open(2)
        await seen.gate(2)
        gates.end()
        await seen.done
    assert seen.messages == ["gate 1", "gate 2", "completed"]
    assert seen.lines == ["step 1", "step 2"]


class Program:
    """A watcher in a process of its own, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str], lines: list[str]) -> None:
        self._process = process
        self._lines = lines
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(line.rstrip("\n") for line in self._process.stdout)

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        code = self._process.wait(30)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@contextmanager
def watching(deployment: Deployment, target: str, gates: Gates, lines: list[str]) -> Iterator[Program]:
    process = deployment.run(WATCHER, target, str(deployment.folder / "handles.json"), str(gates.folder))
    program = Program(process, lines)
    try:
        yield program
    finally:
        if process.poll() is None:
            program.kill()


@pytest.mark.whole
@pytest.mark.parametrize("transport", [pytest.param("stdio", marks=pytest.mark.slow), "http"])
def test_a_watch_goes_on_in_a_program_that_is_killed_and_restarted(
    deployment: Deployment, gates: Gates, transport: str
) -> None:
    handles = HandleFile(deployment.folder / "handles.json")
    lines: list[str] = []

    def kept() -> Any:
        return next(iter(handles.handles().values()), None)

    def pass_gate(i: int) -> None:
        """Open a gate and wait until the program has seen it, and has noted that it did."""
        before = kept()
        gates.open(i)
        assert wait_until(lambda: f"update gate {i}" in lines and f"log step {i}" in lines)
        assert wait_until(lambda: kept().seen != before.seen and kept().log_cursor != before.log_cursor)

    with deployment.http() as server:
        target = server.url if transport == "http" else "stdio"
        with watching(deployment, target, gates, lines) as program:
            assert wait_until(lambda: "started" in lines and kept() is not None)
            pass_gate(1)
            pass_gate(2)
            program.kill()
        gates.open(3)
        assert wait_until(lambda: gates.passed(3))  # while nobody looks
        with watching(deployment, target, gates, lines) as program:
            assert wait_until(lambda: "update gate 3" in lines and "log step 3" in lines)
            pass_gate(4)
            gates.end()
            assert program.wait() == 0
    told = [line for line in lines if line.startswith(("update", "result"))]
    assert told == [*(f"update gate {i}" for i in range(1, 5)), "update completed", "result passed 4 gates"]
    assert [line for line in lines if line.startswith("log")] == [f"log step {i}" for i in range(1, 5)]
    assert [line for line in lines if line in ("started", "found")] == ["started", "found"]
    assert handles.handles() == {}, "what is over is no open handle any more"


async def test_a_task_is_found_again_by_its_id_alone(deployment: Deployment, gates: Gates) -> None:
    with deployment.http() as server:
        async with BackburnerClient(server.url) as client:
            task_id = (await client.start("gates", folder=str(gates.folder), n=0)).task_id
        gates.end()
        for mode in MODES:
            async with BackburnerClient(server.url, mode=mode) as client:
                result = await (await client.resume(task_id)).result()
                assert result.content[0].text == "passed 0 gates"  # type: ignore[union-attr]


async def test_aborting_a_call_ends_the_wait_at_once_and_the_task_only_if_wanted(
    deployment: Deployment, gates: Gates
) -> None:
    handles = HandleFile(deployment.folder / "handles.json")
    with deployment.http() as server:
        async with BackburnerClient(server.url, handles=handles) as client:
            for cancel in (False, True):
                call = asyncio.ensure_future(
                    client.call("gates", folder=str(gates.folder), n=0, cancel_on_abort=cancel)
                )
                (task_id,) = await until(handles.handles)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(call, 20)
                handle = await client.resume(task_id)
                if cancel:
                    assert [u.status async for u in handle.watch()][-1] == "cancelled"
                else:
                    assert (await handle.status()).status == "working"
                    await handle.cancel()
                    assert [u.status async for u in handle.watch()][-1] == "cancelled"


async def test_a_server_that_stays_away_is_given_up_in_the_end(deployment: Deployment, gates: Gates) -> None:
    with deployment.http() as server:
        async with BackburnerClient(server.url, reconnect_s=0.3) as client:
            handle = await client.start("gates", folder=str(gates.folder), n=0)
            server.kill()
            with pytest.raises(ConnectionLost):
                await asyncio.wait_for(handle.result(), 20)


async def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    for target in ("http://127.0.0.1:9/mcp", ["/no/such/command"], [sys.executable, "-c", ""]):
        with pytest.raises(ConnectionLost):
            async with BackburnerClient(target):
                pass


def test_the_file_of_handles_is_private_and_never_half_written(tmp_path: Path) -> None:
    file = HandleFile(tmp_path / "new" / "handles.json")

    def write(i: int) -> None:
        for k in range(20):
            file.keep(OpenHandle(f"t{i}-{k}", "server", "tool", "2026-07-28"))

    writers = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        file.handles()
    for writer in writers:
        writer.join()
    assert len(file.handles()) == 80
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.forget("t0-0")
    assert len(json.loads(file.path.read_text())) == 79
    assert [path.name for path in file.path.parent.iterdir() if path.name.endswith(".json")] == [
        "handles.json"
    ]
