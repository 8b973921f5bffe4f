"""Log lines of servers and supervisors: one each, with the task that they concern as a field."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backburner.observability.logging import FIELDS, LineFormatter, about, say
from backburner.settings import LogSettings
from backburner.store import open_store
from backburner.store.protocol import TaskQuery
from tests.deployment import ROOT, Deployment
from tests.integration.mcp_server.harness import connect
from tests.services import free_port, wait_until

SERVER = Path(__file__).with_name("observed_server.py")
HOSTILE = 'no\r\n\x1b[2J\u2028{"level": "error"}\u202e\x85\x00 end'
_TEXT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ [\w.]+ \S.*")


def written(form: str, message: str, **fields: Any) -> str:
    record = logging.LogRecord("backburner.test", logging.WARNING, "", 0, "it said %s", (message,), None)
    vars(record).update(fields)
    return LineFormatter(form).format(record)


def test_hostile_text_stays_in_its_line_in_either_form() -> None:
    text = written("text", HOSTILE, **about("tsk_1", 2))
    assert text.isprintable()
    assert text.endswith(" task_id=tsk_1 attempt=2")
    assert _TEXT.fullmatch(text)
    line = written("json", HOSTILE, **about("tsk_1", 2))
    assert line.isascii()
    assert line.isprintable()
    values = json.loads(line)
    assert (values["message"], values["task_id"], values["attempt"]) == (f"it said {HOSTILE}", "tsk_1", 2)


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_in_the_line_too(form: str) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        line = written(form, "", exc_info=(type(error), error, error.__traceback__))
    assert len(line.splitlines()) == 1
    assert "ValueError" in line


def test_what_a_server_says_as_it_starts_is_a_line_like_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say(LogSettings(), "MCP is here")
    say(LogSettings(format="json"), "MCP is here")
    text, line = capsys.readouterr().err.splitlines()
    assert text == "backburner: MCP is here"
    assert json.loads(line)["message"] == "MCP is here"


def test_the_fields_are_in_the_documentation() -> None:
    page = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    for field in ("ts", "level", "logger", "message", "exception", *FIELDS):
        assert f"| `{field}` |" in page


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
async def test_every_line_of_server_and_supervisor_is_of_the_form_and_names_its_task(
    tmp_path: Path, form: str
) -> None:
    settings = {"log__format": form, "log__level": "debug"}
    with Deployment(tmp_path, (SERVER,), settings) as deployment:
        port = free_port()
        command = ["-m", "backburner.cli", "serve", str(SERVER), "--http", f"127.0.0.1:{port}"]
        server = _started(deployment, *command)
        try:
            await _answers(port)
            async with connect(f"http://127.0.0.1:{port}/mcp", "2025", tasks=False) as peer:
                await peer.call("fail", {"secret": HOSTILE.replace("\x00", "")})
        finally:
            server.terminate()
            said, _ = await asyncio.to_thread(server.communicate, timeout=30)
        log = tmp_path / "data" / "supervisor.log"
        assert await asyncio.to_thread(wait_until, lambda: " ended: failed" in log.read_text())
        lines = log.read_text().splitlines()
        with contextlib.closing(open_store(deployment.environment["BACKBURNER_STORE"])) as store:
            (task,) = store.page(TaskQuery())
    ended = next(line for line in lines if " ended: failed" in line)
    if form == "json":
        for line in [*lines, *said.splitlines()]:
            assert {"ts", "level", "logger", "message"} <= set(json.loads(line)), line
        assert (json.loads(ended)["task_id"], json.loads(ended)["attempt"]) == (task.task_id, 1)
    else:
        for line in lines:
            assert _TEXT.fullmatch(line), line
        for line in said.splitlines():
            assert _TEXT.fullmatch(line) or line.startswith("backburner: "), line
        assert f"task_id={task.task_id} attempt=1" in ended


def _started(deployment: Deployment, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        deployment.command(program=command),
        env=deployment.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


async def _answers(port: int) -> None:
    import httpx2

    async with httpx2.AsyncClient() as http, asyncio.timeout(60):
        while True:
            try:
                await http.get(f"http://127.0.0.1:{port}/healthz")
                return
            except httpx2.TransportError:
                await asyncio.sleep(0.1)
