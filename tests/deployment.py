"""A store of a test's own, the servers on it and the supervisor that they start."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil
from mcp.client.stdio import StdioServerParameters

from backburner import Backburner
from backburner.engines.local import SupervisorLock
from tests import warm
from tests.services import ended, free_port, wait_until

ROOT = Path(__file__).parents[1]


def foreign_environment() -> dict[str, str]:
    """What a process of a test inherits: no setting of whoever runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BACKBURNER_")}


@dataclass
class Deployment:
    """A folder with a store, whoever serves it, and whoever works on it; when it ends, nobody does any more.

    `program` is a server: a script and its first arguments, to which come `stdio`, or `http` and a port.
    `settings` are Backburner's, `variables` are others of the environment, and `interpreter` runs them all.
    """

    folder: Path
    program: tuple[str | Path, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    interpreter: str | Path = warm.PYTHON

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def environment(self) -> dict[str, str]:
        settings = {
            "store": f"sqlite:///{self.folder}/tasks.db",
            "data_dir": str(self.data_dir),
            "task_id__state_dir": str(self.folder / "state"),
            "supervisor__cancel_grace_s": "1",
            **self.settings,
        }
        return {
            **foreign_environment(),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            **{f"BACKBURNER_{name.upper()}": value for name, value in settings.items()},
            **self.variables,
        }

    def command(self, *words: str | Path, program: tuple[str | Path, ...] = ()) -> list[str]:
        return [str(word) for word in (self.interpreter, *(program or self.program), *words)]

    def stdio(self, *program: str | Path) -> StdioServerParameters:
        command, *words = self.command("stdio", program=program)
        return StdioServerParameters(command=command, args=words, env=self.environment)

    @contextlib.contextmanager
    def http(self, *program: str | Path) -> Iterator[HttpServer]:
        port = free_port()
        server = HttpServer(self.command("http", str(port), program=program), self.environment, port)
        try:
            server.start()
            yield server
        finally:
            server.stop()

    def run(self, script: Path, *words: str) -> subprocess.Popen[str]:
        """Another program of the test; its output is read by lines."""
        command = self.command(*words, program=(script,))
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)

    @contextlib.contextmanager
    def app(self, make: Callable[[], Backburner]) -> Iterator[Backburner]:
        """An app in this process, which has the deployment's environment meanwhile."""
        before, meanwhile = dict(os.environ), self.environment
        os.environ.clear()
        os.environ.update(meanwhile)
        try:
            with contextlib.closing(make()) as app:
                yield app
        finally:
            os.environ.clear()
            os.environ.update(before)

    def supervisor(self) -> psutil.Process | None:
        """The detached supervisor, as soon as it has signed its lock; None when nobody holds that."""
        lock = SupervisorLock(self.data_dir)
        found: psutil.Process | None = None

        def signed_or_free() -> bool:
            nonlocal found
            holder = lock.holder()
            with contextlib.suppress(psutil.Error, KeyError, TypeError):
                process = psutil.Process((holder or {})["pid"])
                found = process if "backburner.supervise" in " ".join(process.cmdline()) else None
            return holder is None or found is not None

        return found if wait_until(signed_or_free) else None

    def close(self) -> None:
        """End the supervisor, which would outlive the test for a while, and what is under it."""
        supervisor = self.supervisor()
        if supervisor is None:
            return
        with contextlib.suppress(psutil.Error):
            family = [supervisor, *supervisor.children(recursive=True)]
            for number in (signal.SIGTERM, signal.SIGINT):  # the second time it does not wait for its tasks
                supervisor.send_signal(number)
            ended(supervisor, within=5)
            for member in family:
                with contextlib.suppress(psutil.Error):
                    member.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class HttpServer:
    """A server on a port of its own, which can be killed and started again."""

    def __init__(self, command: list[str], environment: dict[str, str], port: int) -> None:
        self._command = command
        self._environment = environment
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"http://127.0.0.1:{port}"
        self.url = f"{self.address}/mcp"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = process = subprocess.Popen(self._command, env=self._environment)
        assert wait_until(lambda: process.poll() is not None or self._answers())
        assert process.poll() is None, "the server did not come up"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5):
            return True
        return False
