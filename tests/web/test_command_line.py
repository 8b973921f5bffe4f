"""The command line at a server elsewhere: `--server URL --token …`, through the API and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import foreign_environment
from tests.web.conftest import UNKNOWN, Api

COMMAND = str(Path(sys.executable).with_name("backburner"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.slow


@pytest.fixture
def run(guarded: str, tmp_path: Path) -> Run:
    """Runs a verb in a folder where there is nothing, as the bearer of a token."""

    def verb(*words: str, token: str = "alice", stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *words, "--server", guarded],
            cwd=tmp_path,
            env={**foreign_environment(), "BACKBURNER_TOKEN": f"token-of-{token}"},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    return verb


@pytest.fixture
def told(run: Run) -> Callable[..., Any]:
    """The JSON that a verb wrote."""

    def verb(*words: str, **given: Any) -> Any:
        done = run(*words, "--json", **given)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return verb


def test_tasks_are_looked_at(
    by: Callable[[str], Api], run: Run, told: Callable[..., Any], tmp_path: Path
) -> None:
    task_id = by("alice").finished("count", n=3, key="hush")
    assert task_id in [
        one["task_id"] for one in told("ls", "--tool", "count", "--state", "succeeded")["tasks"]
    ]
    shown = told("show", task_id[4:26])  # by how it begins
    assert shown["task_id"] == task_id
    assert shown["inputs"]["key"] == "***"
    assert [one["signal"] for one in shown["events"]] == ["submit", "claim", "start", "succeed"]
    assert run("logs", task_id).stdout.splitlines() == ["step 1", "step 2", "step 3"]
    assert told("result", task_id)["result"] == {"counted": 3, "key_chars": 4}
    assert run("artifacts", "get", task_id, "-o", "files").returncode == 0
    assert (tmp_path / "files" / "digits.txt").read_bytes() == b"0123456789" * 100


def test_tasks_are_steered(by: Callable[[str], Api], run: Run, told: Callable[..., Any]) -> None:
    alice = by("alice")
    waiting = alice.submit("wait")
    alice.until(waiting, lambda task: task["state"] == "running")
    assert run("cancel", waiting, "--reason", "enough").returncode == 0
    assert "cancelled" in run("watch", waiting).stderr
    failed = alice.finished("fail")
    assert told("retry", failed)["task_id"] == failed
    assert run("result", failed, "--wait").returncode == 1
    asking = alice.submit("ask")
    alice.until(asking, lambda task: task["state"] == "input_required")
    assert run("answer", asking, "name=Ada").returncode == 0
    assert run("result", asking, "--wait").stdout == "Hello, Ada!\n"


def test_errors_are_those_of_the_server(by: Callable[[str], Api], run: Run, guarded: str) -> None:
    task_id = by("alice").finished("count")
    for words, token in ((("show", task_id), "bob"), (("show", UNKNOWN), "alice")):
        refused = run(*words, token=token)
        assert refused.returncode == run("show", UNKNOWN).returncode != 0
        assert "There is no task" in refused.stderr
    assert "has the role read" in run("cancel", task_id, token="alices-screen").stderr
    assert "wants a bearer token" in run("ls", token="nobody").stderr
    assert "not both" in run("ls", "--store", "sqlite:///x.db").stderr
    away = subprocess.run(
        [COMMAND, "ls", "--server", "http://127.0.0.1:9"], capture_output=True, text=True, check=False
    )
    assert "cannot be reached" in away.stderr
