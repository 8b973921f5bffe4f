"""The workers of an app by the command line: by ours, and by Dramatiq's own on the module that we provide."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner.core.lifecycle import State
from backburner.tools.targets import load, parse
from tests import services
from tests.integration.engine.local import Local, running
from tests.services import RedisServer

BIN = Path(sys.executable).parent

LAB = """
import time

from backburner import Backburner

bb = Backburner("lab", store="sqlite:///lab.db", engine="dramatiq", supervisor={"keeper_interval_s": 0.2})


@bb.tool
def standard(word: str) -> str:
    print("said", word)
    return word


@bb.tool(queue="cpu_heavy")
def heavy(word: str) -> str:
    return word


@bb.tool
def span() -> list[int]:
    began = time.time_ns()
    time.sleep(0.05)
    return [began, time.time_ns()]


@bb.tool(queue="cpu_heavy")
def heavy_span() -> list[int]:
    return span()
"""


@pytest.fixture
def lab(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, run_directory: str
) -> Iterator[Local]:
    (tmp_path / "lab.py").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BACKBURNER_BROKER__URL", redis_server.url)
    monkeypatch.setenv("BACKBURNER_BROKER__NAMESPACE", f"test_{tmp_path.name}")
    with running(load(parse("lab.py"))) as local:
        yield local


@contextlib.contextmanager
def started(*command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(BIN / command[0]), *command[1:]],
        env={**os.environ, **variables},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    services.running.add(process.pid)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        services.running.discard(process.pid)


def test_our_command_becomes_dramatiq_s_for_all_queues_and_ends_when_it_is_told(lab: Local) -> None:
    queues = ("--queue", "cpu_standard=1", "--queue", "cpu_heavy=1")
    with started("backburner", "worker", "lab.py", "--engine", "dramatiq", *queues) as process:
        for tool in ("standard", "heavy"):
            task = lab.run(tool, word="yes")
            assert (task.state, task.result) == (State.SUCCEEDED, "yes")
        by_a_loop = asyncio.run(lab.service.aio.submit("standard", {"word": "loop"})).task_id
        assert lab.end(by_a_loop).result == "loop"
        process.terminate()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said


@pytest.mark.whole
def test_dramatiq_s_own_command_runs_as_many_tasks_of_a_queue_at_once_as_it_has_threads(lab: Local) -> None:
    command = ("dramatiq", "backburner.engines.dramatiq.worker", "--processes", "1", "--threads", "1")
    with started(*command, BACKBURNER_TARGET="lab.py") as process:
        ids = {tool: [lab.submit(tool) for _ in range(3)] for tool in ("span", "heavy_span")}
        for own in ids.values():
            spans = sorted(lab.end(task_id).result for task_id in own)
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
        process.terminate()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said


def test_a_worker_that_is_told_of_no_app_says_how_to_name_one(tmp_path: Path) -> None:
    with started("dramatiq", "backburner.engines.dramatiq.worker", "--processes", "1") as process:
        _, said = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "BACKBURNER_TARGET=/path/lab.py" in said
