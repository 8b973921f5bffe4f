"""Walks of a call, a cancel, a log line, a question and a Celery task: the files that each passes.

A file counts when one of its functions is called with the task, the log line or the question as an argument.
Each walk is repeated, and consists of the files that all repetitions pass.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from backburner.core.lifecycle import State
from backburner.store import open_store
from backburner.store.protocol import Store
from tests import services
from tests.deployment import ROOT, Deployment
from tests.integration.mcp_server.harness import Peer, connect
from tests.services import until

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
HERE = Path(__file__).parent
REPETITIONS = 4
STORED = "stored"
#: No heartbeat and no sweep meanwhile.
QUIET = {
    "mcp__patience_s": "60",
    "supervisor__heartbeat_s": "100",
    "supervisor__lease_grace_s": "500",
    "supervisor__keeper_interval_s": "500",
}


def named_on_page(walk: str) -> set[str]:
    """Return the files that docs/explanation/architecture.md names for a walk."""
    told = PAGE.read_text().partition(f"<!-- walk: {walk} -->")[2].partition("<!-- /walk -->")[0]
    return set(re.findall(r"`([\w/]+\.py)`", told))


@dataclass
class Recorder:
    """Opens windows for the traced processes, which all see them at once."""

    folder: Path
    windows: int = 0
    files: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._set(0, "")

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the processes to trace."""
        path = [str(HERE / "trace"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {"PYTHONPATH": os.pathsep.join(filter(None, path)), "BACKBURNER_TEST_WALK": str(self.folder)}

    @contextlib.contextmanager
    def window(self, walk: str, text: str) -> Iterator[None]:
        """Record the files that handle a task, by a text that names it: its id, or an input."""
        self.windows += 1
        self._set(self.windows, text)
        try:
            yield
        finally:
            self._set(0, text)
        lines = (self.folder / str(self.windows)).read_text().splitlines()
        if walk == "call":  # up to the moment at which it is stored
            lines = lines[: lines.index(STORED)]
        self.files[walk] = self.files.get(walk, set(lines)).intersection(lines) - {STORED}

    def _set(self, number: int, text: str) -> None:
        file = os.open(self.folder / "window", os.O_RDWR | os.O_CREAT, 0o666)
        os.pwrite(file, bytes(127 - len(text)), 1 + len(text))
        os.pwrite(file, text.encode(), 1)
        os.pwrite(file, bytes([number]), 0)
        os.close(file)


@contextlib.contextmanager
def deployed(folder: Path, recorder: Recorder, **settings: str) -> Iterator[Deployment]:
    # A real process of its own: a warm one is forked from a process that has imported the package untraced.
    given = {**QUIET, **settings}
    with Deployment(folder, (HERE / "app.py",), given, recorder.variables, sys.executable) as deployment:
        yield deployment


@dataclass
class Walker:
    """A client of the traced server, which looks into its store from outside."""

    peer: Peer
    store: Store
    folder: Path
    recorder: Recorder

    async def running(self, tool: str, number: int) -> tuple[str, Path]:
        """Start a tool, and give its task and the folder in which it waits for files."""
        folder = self.folder / f"{tool}-{number}"
        folder.mkdir()
        given = {} if tool == "run" else {"folder": str(folder)}
        task_id = await self.peer.start(tool, given)
        await until(lambda: self.store.get(task_id).state is State.RUNNING)
        return task_id, folder

    async def walk_call(self, number: int) -> None:
        text = f"call number {number}"
        with self.recorder.window("call", text):
            await self.peer.start("wait", {"text": text})

    async def walk_cancel(self, number: int) -> None:
        task_id, _ = await self.running("run", number)
        with self.recorder.window("cancel", task_id):
            await self.peer.request("tasks/cancel", {"taskId": task_id})
            await until(lambda: self.store.get(task_id).finished)

    async def walk_log(self, number: int) -> None:
        task_id, folder = await self.running("write", number)
        text = f"line of {folder.name}"
        with self.recorder.window("log", text):
            (folder / "print").touch()
            await until(lambda: any(line.message == text for line in self.store.logs(task_id)))
            lines = await self.peer.tool("tail_task_logs", task_id=task_id)
        assert text in str(lines)
        (folder / "end").touch()
        await until(lambda: self.store.get(task_id).finished)

    async def walk_question(self, number: int) -> None:
        task_id, folder = await self.running("ask", number)
        text = f"Name of {folder.name}"
        with self.recorder.window("question", text):
            (folder / "ask").touch()
            await until(lambda: self.store.get(task_id).state is State.INPUT_REQUIRED)
            asked = await self.peer.request("tasks/get", {"taskId": task_id})
            answer = {"action": "accept", "content": {"name": text}}
            answers = dict.fromkeys(asked["inputRequests"], answer)
            await self.peer.request("tasks/update", {"taskId": task_id, "inputResponses": answers})
            await until(lambda: self.store.get(task_id).state is State.RUNNING)
        (folder / "end").touch()
        await until(lambda: self.store.get(task_id).finished)

    async def walk_celery(self, number: int) -> None:
        text = f"celery number {number}"
        with self.recorder.window("celery", text):
            task_id = await self.peer.start("echo", {"text": text})
            await until(lambda: self.store.get(task_id).finished)
        assert self.store.get(task_id).state is State.SUCCEEDED


@contextlib.asynccontextmanager
async def walker(deployment: Deployment, recorder: Recorder) -> AsyncIterator[Walker]:
    async with connect(deployment.stdio(), "2026", check=False) as peer:
        with contextlib.closing(open_store(deployment.environment["BACKBURNER_STORE"])) as store:
            yield Walker(peer, store, deployment.folder, recorder)


async def local_walks(folder: Path) -> dict[str, set[str]]:
    """Record the walks on the local engine."""
    recorder = Recorder(folder)
    with deployed(folder, recorder) as deployment:
        async with walker(deployment, recorder) as client:
            # What is made once, is made by the first calls.
            await client.peer.poll(await client.peer.start("echo", {"text": "first"}))
            client.store.pause_queue("cpu_small", "test")
            await client.peer.start("wait", {"text": "first"})
            for number in range(REPETITIONS):
                for walk in (client.walk_call, client.walk_cancel, client.walk_log, client.walk_question):
                    await walk(number)
    return recorder.files


async def celery_walk(folder: Path, url: str) -> dict[str, set[str]]:
    """Record the walk of a task through Celery, with the broker at `url`."""
    recorder = Recorder(folder)
    settings = {"engine": "celery", "broker__url": url, "broker__namespace": f"walk_{os.getpid()}"}
    with deployed(folder, recorder, **{**settings, "supervisor__keeper_interval_s": "1"}) as deployment:
        command = deployment.command(
            "worker", HERE / "app.py", "--engine", "celery", program=("-m", "backburner.cli")
        )
        with processes(command, deployment.environment):
            async with walker(deployment, recorder) as client:
                await client.peer.poll(await client.peer.start("echo", {"text": "first"}))
                for number in range(REPETITIONS):
                    await client.walk_celery(number)
    return recorder.files


@contextlib.contextmanager
def processes(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    """Run a command with all its children; they are gone afterwards."""
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    services.running.add(process.pid)
    try:
        yield
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        for member in [*family, psutil.Process(process.pid)] if process.poll() is None else family:
            with contextlib.suppress(psutil.Error):
                member.kill()
        process.wait()
        services.running.discard(process.pid)
