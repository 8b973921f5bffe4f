"""A folder with an app, the real command in it, a worker and a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backburner import Backburner, Task, TaskService, open_store
from backburner.tools.targets import load
from tests import services, warm
from tests.deployment import foreign_environment
from tests.pseudo_terminal import OnTerminal

HERE = Path(__file__).parent
COMMAND = [warm.BACKBURNER]
COLD_COMMAND = [str(Path(sys.executable).with_name("backburner"))]


class Lab:
    """A folder with `lab.py`, which the command line finds by BACKBURNER_TARGET."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(HERE / "lab.py", folder / "lab.py")
        own = {"BACKBURNER_TARGET": "lab.py", "XDG_STATE_HOME": f"{folder}/state", "TERM": "xterm-256color"}
        self.environment = {**foreign_environment(), **own}
        self.url = f"sqlite:///{folder}/lab.db"
        self._gates = 0

    def run(
        self, *words: str, stdin: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. A variable that is given as empty is not set.

        It starts cold where PYTHONPATH is given, since what that names may replace what is warm.
        """
        merged = {**self.environment, **environment}
        return subprocess.run(
            [*(COLD_COMMAND if "PYTHONPATH" in environment else COMMAND), *words],
            cwd=self.folder,
            env={key: value for key, value in merged.items() if value},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def json(self, *words: str, code: int = 0, **environment: str) -> Any:
        """The JSON that a verb wrote."""
        done = self.run(*words, "--json", **environment)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command that goes on. Its process id is that of the command itself."""
        return subprocess.Popen(
            [*COLD_COMMAND, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def terminal(self, *words: str, **environment: str) -> OnTerminal:
        """Begin a verb on a terminal of 80 columns."""
        return OnTerminal([*COMMAND, *words], self.folder, {**self.environment, **environment})

    def submit(self, tool_name: str, *, owner: str = "local", **inputs: str | int) -> str:
        """Submit without the command line, and without starting anybody to work."""
        (task_id,) = self.submit_many(tool_name, 1, owner=owner, **inputs)
        return task_id

    def submit_many(
        self, tool_name: str, count: int, *, owner: str = "local", **inputs: str | int
    ) -> list[str]:
        """As `submit`, so many times."""
        target = f"file:{self.folder}/lab.py#lab"
        app: Backburner = load(target)
        with contextlib.closing(open_store(self.url, synchronous="normal")) as store:
            service = TaskService(store, app.tools, app.settings, target=target)
            return [service.submit(tool_name, inputs, owner=owner).task_id for _ in range(count)]

    def task(self, task_id: str) -> Task:
        with contextlib.closing(open_store(self.url)) as store:
            return store.get(task_id)

    def wait_for_state(self, task_id: str, state: str) -> None:
        with contextlib.closing(open_store(self.url)) as store:
            assert services.wait_until(lambda: store.get(task_id).state == state), store.get(task_id)

    def have_supervisors_stay(self) -> None:
        """One that is to be looked at must not leave before; the test has to stop it."""
        file = self.folder / "lab.py"
        file.write_text(file.read_text().replace('"idle_exit_s": 1,', '"idle_exit_s": 60,'))

    def gate(self) -> Gate:
        self._gates += 1
        return Gate(self.folder / f"gate-{self._gates}")


class Gate:
    """What a tool waits for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.path = str(path)

    def __str__(self) -> str:
        """As a word on the command line."""
        return f"gate={self.path}"

    def open(self) -> None:
        self._path.touch()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


class Worker:
    """A `backburner worker` in the foreground."""

    def __init__(self, lab: Lab, *words: str) -> None:
        self.process = lab.start("worker", "lab.py", *words)
        assert self.process.stderr is not None
        self.greeting = self.process.stderr.readline()
        assert " works on " in self.greeting, self.greeting + self.process.stderr.read()

    def signal(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said last."""
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal()
            self.process.send_signal(signal.SIGINT)  # another one: two alike could become one
        self.end()


@pytest.fixture
def worker(lab: Lab) -> Iterator[Worker]:
    with contextlib.closing(Worker(lab)) as started:
        yield started


@pytest.fixture(scope="module")
def manned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A folder with a worker in it, for tests of a file that look at no tasks but their own."""
    lab = Lab(tmp_path_factory.mktemp("manned"))
    with contextlib.closing(Worker(lab)) as started:
        services.running.add(started.process.pid)
        yield lab


class Terminal:
    """A terminal of 140 columns and 24 lines, in which commands are typed and the screen is read."""

    def __init__(self, lab: Lab) -> None:
        if shutil.which("tmux") is None:
            services.unavailable("tmux is not installed: `make services` as root, or apt-get install tmux")
        self._sockets = tempfile.mkdtemp(prefix="bb-tmux-")  # a socket's path must be short
        self._tmux = ["tmux", "-S", f"{self._sockets}/s", "-f", "/dev/null"]
        path = f"{warm.PROGRAMS}:{os.environ['PATH']}"
        environment = {**lab.environment, "PATH": path}
        environment.pop("NO_COLOR", None)
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", "140", "-y", "24", "bash --norc --noprofile"],
            cwd=lab.folder,
            env={**environment, "LC_ALL": "C.UTF-8"},
            check=True,
        )
        self._do("send-keys", "-l", "PS1='$ '; clear")
        self._do("send-keys", "Enter")
        self.wait_for(r"^\$$")

    def _do(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def type(self, command: str) -> None:
        """Type a command on an empty screen."""
        self._do("send-keys", "-l", f"clear; {command}")
        self._do("send-keys", "Enter")

    def key(self, name: str) -> None:
        self._do("send-keys", name)

    def screen(self, *, colours: bool = False) -> str:
        shown = self._do("capture-pane", "-p", "-J", *(["-e"] if colours else []))
        return "\n".join(line.rstrip() for line in shown.rstrip().splitlines())

    def wait_for(self, pattern: str) -> str:
        """The screen, as soon as the pattern (text, or a regular expression) is on it."""
        seen = ""

        def there() -> bool:
            nonlocal seen
            seen = self.screen()
            return pattern in seen or re.search(pattern, seen) is not None

        assert services.wait_until(there), f"{pattern!r} never came; the screen:\n{self.screen()}"
        return seen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)
        shutil.rmtree(self._sockets, ignore_errors=True)


@pytest.fixture
def terminal(lab: Lab) -> Iterator[Terminal]:
    opened = Terminal(lab)
    try:
        yield opened
    finally:
        opened.close()
