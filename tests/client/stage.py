"""A store and the servers on it, for one test of the client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from mcp.client.stdio import StdioServerParameters

HERE = Path(__file__).parent
APP = HERE / "app.py"
SEED = HERE / "seed_server.py"


@dataclass
class Stage:
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "store": f"sqlite:///{self.folder}/tasks.db",
            "data_dir": str(self.folder / "data"),
            "state_dir": str(self.folder / "state"),
            "cancel_grace_s": "1",
            **self.settings,
        }
        chosen = {f"BACKBURNER_{key.upper()}": value for key, value in own.items()}
        return {**os.environ, **chosen, "PYTHONPATH": str(HERE.parents[1])}

    def stdio(self, *command: str) -> StdioServerParameters:
        script, *arguments = command or (str(APP),)
        return StdioServerParameters(
            command=sys.executable, args=[script, *arguments, "stdio"], env=self.environment
        )

    @contextlib.contextmanager
    def http(self, *command: str, port: int | None = None) -> Iterator[HttpServer]:
        server = HttpServer([*(command or (str(APP),)), "http"], self.environment, port or free_port())
        try:
            server.start()
            yield server
        finally:
            server.stop()

    def run(self, script: Path, *arguments: str) -> subprocess.Popen[str]:
        """Another program of the test; its output is read by lines."""
        return subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the supervisor, which would outlive us for a while."""
        try:
            pid = json.loads((self.folder / "data" / "supervisor.lock").read_text())["pid"]
            process = psutil.Process(pid)
            family = [process, *process.children(recursive=True)]
        except (OSError, ValueError, psutil.Error):
            return
        if "backburner.supervise" not in " ".join(process.cmdline()):
            return
        for _ in range(2):  # the second time it does not wait for its tasks
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(5)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()


class HttpServer:
    """A server on a port of its own, which can be killed and started again."""

    def __init__(self, command: list[str], environment: dict[str, str], port: int) -> None:
        self._command = [sys.executable, *command, str(port)]
        self._environment = environment
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{port}/mcp"

    def start(self) -> None:
        process = subprocess.Popen(self._command, env=self._environment)
        self._process = process
        wait_for(lambda: process.poll() is not None or _answers(self._port))
        assert process.poll() is None, "the server did not come up"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False


def wait_for(condition: Callable[[], Any], within_s: float = 20) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


async def until(condition: Callable[[], Any], within_s: float = 20) -> Any:
    """Wait until the condition gives something, and give that."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
    return found


class Gates:
    """The test's side of the tool `gates`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def open(self, i: int) -> None:
        (self.folder / f"open-{i}").touch()

    def passed(self, i: int) -> bool:
        return (self.folder / f"passed-{i}").exists()

    def end(self) -> None:
        (self.folder / "end").touch()
