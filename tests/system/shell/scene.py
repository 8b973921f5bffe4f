"""A folder in which a section's lines are typed: with the app that its page shows, and tasks to name."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from backburner import Backburner, TaskService, open_store
from backburner.cli.calls import read_inputs
from backburner.tools.targets import load, parse
from tests import warm
from tests.deployment import foreign_environment
from tests.pseudo_terminal import OnTerminal
from tests.services import free_port, wait_until
from tests.system.shell.lines import Section

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "docs", "version": "1"},
    },
}

#: How tasks of each kind come about, by the tool that the app has for them.
_CALLS = {
    "count": {"finished": "count steps=1", "running": "count steps=1000000"},
    "count_words": {"finished": "count_words path=lab.py"},
    "relax": {
        "finished": "relax structure=cu.cif",
        "running": "relax structure=cu.cif steps=1000000",
        "failed": "relax structure=cu.cif steps=-1",
        "input_required": "choose",
    },
}
#: The kind of task that a verb is about, where it is not a finished one.
_WANTED = {"cancel": "running", "retry": "failed", "answer": "input_required", "run-task": "queued"}


_TASK = re.compile(r"\btsk_01J8WQ6JY7|\bTASK(_ID)?\b")
_NAMES_A_PLACE = re.compile(r" (-t|--target|--store|worker|serve|bridge) ")


def first_snippet(page: str) -> str:
    text = (ROOT / page).read_text()
    return str(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])


class Scene:
    """`lab.py` and what else the page speaks of; commands are found as in an activated environment."""

    def __init__(self, folder: Path, section: Section, store: str = "") -> None:
        self.folder = folder
        codes = {
            "commands.md": (HERE / "lab.py").read_text(),
            "first-task.md": first_snippet("docs/start/first-task.md"),
        }
        of_page = codes.get(section.page) or first_snippet("README.md")
        names_a_task = any(_TASK.search(line) for line in section.lines)
        self._section, self._code = section, of_page if names_a_task else section.code or of_page
        (folder / "pkg").mkdir()
        (folder / "lab.py").write_text(self._code)
        (folder / "pkg" / "lab.py").write_text(of_page)
        (folder / "inputs.json").write_text(json.dumps({"structure": "cu.cif", "steps": 2}))
        self.port = free_port()
        self._store = store
        self.environment = {
            **foreign_environment(),
            "PATH": f"{warm.PROGRAMS}:{os.environ['PATH']}",
            "BACKBURNER_SUPERVISOR__IDLE_EXIT_S": "1",
            "XDG_STATE_HOME": str(folder / "state"),
            "TERM": "xterm",
            "PYTHONPATH": str(folder),
        }

    # -- a line as it is typed

    def typed(self, line: str) -> str:
        """The line with what stands for something else replaced by what is there."""
        known = self._section.page == "commands.md" or line in self._section.spoken
        line = line.replace("/opt/lab/venv/bin", str(warm.PROGRAMS)).replace("/opt/lab", str(self.folder))
        line = re.sub(r"(?<=[:=])8765\b", str(self.port), line).replace("backburner COMMAND", "backburner ls")
        line = line.replace("COMMAND", "python lab.py")
        if self._store:
            line = re.sub(r"postgresql://[^\s`]+", self._store, line)
        line = _TASK.sub(lambda _: self._task_for(line), line)
        # As the page of verbs says, this saves the typing.
        return (
            line if not known or _NAMES_A_PLACE.search(line) else f"export BACKBURNER_TARGET=lab.py; {line}"
        )

    def export(self, line: str) -> None:
        """Keep what an `export` sets for the lines after it."""
        shown = self.run(f"{line} && backburner tools -t lab.py >&2 && env -0").stdout
        assert shown, f"no app can be loaded after {line}"
        self.environment |= dict(
            entry.split("=", 1) for entry in shown.split("\0") if entry.startswith("BACKBURNER_")
        )

    # -- running it

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def converse(self, line: str) -> str:
        """What a server over stdio says to a client that greets it and goes; it ends in order then."""
        with self._server(line) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            os.write(server.stdin.fileno(), f"{json.dumps(_HELLO)}\n".encode())
            said = ""
            while "serverInfo" not in said and (more := os.read(server.stdout.fileno(), 65536).decode()):
                said += more
            server.stdin.close()
            assert server.wait(30) == 0, said
        return said

    def _server(self, line: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @contextlib.contextmanager
    def prepared(self, line: str) -> Iterator[None]:
        """While this goes on, what the line speaks of is there: a server at its address, a token."""
        if re.search(r"token revoke laptop", line) and not list(self.folder.glob("*.d/tokens")):
            self.run("backburner token new --owner alice --name laptop -t lab.py")
        if f"http://127.0.0.1:{self.port}/mcp" not in line or "serve" in line:
            yield
            return
        server = self.terminal(f"backburner serve lab.py --http 127.0.0.1:{self.port}")
        with contextlib.closing(server):
            server.wait_for("MCP is at")
            yield
            server.interrupt()

    def terminal(self, line: str) -> OnTerminal:
        return OnTerminal(["bash", "-c", line], self.folder, self.environment)

    def close(self) -> None:
        """End what still waits or runs, so that the supervisor leaves."""
        if (self.folder / "lab.db").exists() or self._store:
            with contextlib.closing(self._app()) as app:
                for task in app.service.list(owner=None, limit=500).tasks:
                    app.service.cancel(task.task_id, owner=None)

    # -- the tasks that are there

    def _task_for(self, line: str) -> str:
        verb = re.findall(r"backburner (\S+)", line)[-1]
        kind = _WANTED.get(verb, "finished")
        tool = next(tool for tool in _CALLS if f"def {tool}(" in self._code)
        if kind == "queued":
            return self._queued(*_CALLS[tool]["finished"].split())
        return self._submitted(_CALLS[tool][kind], kind)

    def _submitted(self, words: str, kind: str) -> str:
        submitted = self.run(f"backburner call --detach {words} -t lab.py")
        assert submitted.returncode == 0, submitted.stderr
        task_id = submitted.stdout.strip()
        done = {"finished": "succeeded"}.get(kind, kind)
        with contextlib.closing(self._app()) as app:
            assert wait_until(lambda: app.store.get(task_id).state == done), app.store.get(task_id)
        return task_id

    def _queued(self, tool: str, *words: str) -> str:
        """Without the command line, so that nobody is started who works on it."""
        with (
            contextlib.closing(self._app()) as app,
            contextlib.closing(open_store(app.settings.store)) as store,
        ):
            service = TaskService(store, app.tools, app.settings, target=app.target)
            inputs = read_inputs(words, None, app.tools.get(tool).input_schema)
            return service.submit(tool, inputs).task_id

    def _app(self) -> Backburner:
        maker = ":make" if "def make(" in self._code else ""
        app: Backburner = load(parse(f"{self.folder}/lab.py{maker}"))
        app.settings = dataclasses.replace(
            app.settings, store=self._store or f"sqlite:///{self.folder}/lab.db"
        )
        return app
