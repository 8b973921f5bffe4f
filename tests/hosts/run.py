"""One run of a host, in a namespace that has only loopback: `python -m tests.hosts.run` with a Case as JSON.

The host gets one prompt, for one call of a tool of the lab. The last line of the output is a Finding as JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests import warm
from tests.hosts.hosts import FOLDER, HOSTS, ROOT, Setup, search_path
from tests.hosts.lab import ENDLESS_S
from tests.hosts.model import Model, Turn

#: Seconds that each tool of the lab takes.
TOOLS = {"quick": 0.2, "short": 3, "estimated": 3, "medium": 45, "long": 200}
ENDLESS = ("silent", "lively")
_META = "io.modelcontextprotocol/"
#: Beyond twice the time of the tool, a run is ended.
_MARGIN_S = 120
#: Queries of a terminal that an app waits for, and their answers: attributes, position of the cursor.
_TERMINAL = {b"\x1b[c": b"\x1b[?62;c", b"\x1b[6n": b"\x1b[1;1R"}


@dataclass(frozen=True)
class Case:
    host: str
    tool: str
    timeout_s: int | None = None

    @property
    def name(self) -> str:
        return f"{self.host}-{self.tool}" + (f"-{self.timeout_s}s" if self.timeout_s else "")

    @property
    def limit_s(self) -> float:
        return ENDLESS_S + 40 if self.tool in ENDLESS else 2 * TOOLS[self.tool] + _MARGIN_S


@dataclass(frozen=True)
class Finding:
    """Result of a run. `turns` counts from the call of the tool; `gave_up_s` is None if the host did not."""

    case: Case
    called: bool
    turns: int
    lost: bool
    runs: int
    cancelled: int
    protocol: str
    client: str
    gave_up_s: float | None
    seconds: float


def run_isolated(case: Case) -> Finding:
    """Run a case in a namespace of its own, where all its processes end with it."""
    isolate = ["unshare", "-rnpf", "--mount-proc", "--kill-child"]
    command = [*isolate, sys.executable, "-m", "tests.hosts.run", json.dumps(asdict(case))]
    with tempfile.TemporaryDirectory(
        prefix="hosts-"
    ) as temporary:  # process ids are the same in each namespace
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": temporary},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=case.limit_s + _MARGIN_S,
        )
    if done.returncode:
        raise RuntimeError(f"{case.name} could not be run: exit code {done.returncode}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Finding(**{**found, "case": case})


def run(case: Case) -> Finding:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    folder = FOLDER / "runs" / case.name
    shutil.rmtree(folder, ignore_errors=True)
    home, work, lab = (folder / name for name in ("home", "work", "lab"))
    for each in (home, work, lab):
        each.mkdir(parents=True)
    model = Model(folder / "model.jsonl")
    host = HOSTS[case.host]
    program = host.find()
    assert program is not None
    here = Path(__file__).parent
    wire = folder / "wire.jsonl"
    # A warm start, because some hosts wait only briefly for a server.
    server = [warm.PYTHON, str(here / "tap.py"), str(wire), warm.PYTHON, str(here / "lab.py")]
    prompt = f"Please get the report. BENCH:{case.tool}"
    setup = Setup(program, home, work, server, {"LAB": str(lab)}, model.url, prompt, case.timeout_s)
    _replace_environment(home)
    with warm.serving():
        command, environment = host.launch(setup)
        begun = time.monotonic()
        with _host(command, environment, folder, on_terminal=host.on_terminal) as process:
            while process.poll() is None and time.monotonic() < begun + case.limit_s:
                since = _since_call(case, model.turns)
                if case.tool in ENDLESS and len(since) > 1:
                    break
                if host.on_terminal and since and since[-1].answered:
                    time.sleep(5)  # a host that goes on would show a turn too many
                    break
                time.sleep(0.2)
        return _finding(case, model, _messages(wire), lab, time.monotonic() - begun)


def _replace_environment(home: Path) -> None:
    """Hide the user's configuration and credentials from the host."""
    kept = {key: os.environ[key] for key in ("LANG", "TMPDIR") if key in os.environ}
    path = search_path()
    os.environ.clear()
    os.environ.update(kept, PATH=path, HOME=str(home), TERM="xterm-256color", SHELL="/bin/sh")
    os.environ.update(CI="1", DO_NOT_TRACK="1", NO_COLOR="1")


@contextlib.contextmanager
def _host(
    command: list[str], environment: Mapping[str, str], folder: Path, *, on_terminal: bool
) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "host.out").open("wb") as output:
        ours, theirs = pty.openpty() if on_terminal else (None, None)
        process = subprocess.Popen(
            command,
            cwd=folder / "work",
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL if theirs is None else theirs,
            stdout=output if theirs is None else theirs,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if ours is not None:
            threading.Thread(target=_be_terminal, args=(ours, output), daemon=True).start()
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(8)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def _be_terminal(terminal: int, output: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        while some := os.read(terminal, 65536):
            output.write(some)
            for query, answer in _TERMINAL.items():
                if query in some:
                    os.write(terminal, answer)


def _messages(wire: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in wire.read_text().splitlines()] if wire.exists() else []


def _finding(case: Case, model: Model, messages: list[dict[str, Any]], lab: Path, seconds: float) -> Finding:
    turns = _since_call(case, model.turns)
    ledger = lab / "ledger"
    runs = len(ledger.read_text().splitlines()) if ledger.exists() else 0
    protocol, client = _peer(messages)
    gave_up = turns[1].at - turns[0].at if len(turns) > 1 and not turns[1].answered else None
    return Finding(
        case=case,
        called=bool(turns),
        turns=len(turns),
        lost=not any(turn.answered for turn in turns),
        runs=runs,
        cancelled=_cancelled(lab),
        protocol=protocol,
        client=client,
        gave_up_s=round(gave_up, 1) if gave_up is not None and case.tool in ENDLESS else None,
        seconds=round(seconds, 1),
    )


def _since_call(case: Case, turns: Sequence[Turn]) -> Sequence[Turn]:
    """Leave out the turns in which the host has not listed the tool yet."""
    return [*itertools.dropwhile(lambda turn: not turn.move.tool.endswith(case.tool), turns)]


def _peer(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the protocol and the client name of the tool call."""
    protocol = client = ""
    for message in (entry["message"] for entry in messages):
        if message.get("method") == "initialize":
            protocol, client = message["params"]["protocolVersion"], message["params"]["clientInfo"]["name"]
        elif "protocolVersion" in (result := message.get("result") or {}):
            protocol = result["protocolVersion"]
        elif message.get("method") == "tools/call":
            meta = message["params"].get("_meta") or {}
            protocol = meta.get(f"{_META}protocolVersion", protocol)
            return protocol, meta.get(f"{_META}clientInfo", {}).get("name", client)
    return protocol, client


def _cancelled(lab: Path) -> int:
    command = [warm.BACKBURNER, "ls", "--json", "-t", str(Path(__file__).with_name("lab.py"))]
    done = subprocess.run(
        command, env={**os.environ, "LAB": str(lab)}, capture_output=True, text=True, check=True
    )
    return sum(task["state"] == "cancelled" for task in json.loads(done.stdout)["tasks"])


def main() -> None:
    print(json.dumps(asdict(run(Case(**json.loads(sys.argv[1]))))))


if __name__ == "__main__":
    main()
