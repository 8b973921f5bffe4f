"""The lines of docs/api.md: each is typed as it is printed, at a server of the README's app."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import warm
from tests.deployment import Deployment, HttpServer
from tests.integration.web.conftest import Api
from tests.services import free_port, unavailable
from tests.system.shell.lines import ROOT
from tests.system.shell.scene import first_snippet

PAGE = ROOT / "docs" / "reference" / "api.md"
COMMAND = warm.BACKBURNER


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "lab.py").write_text(first_snippet("README.md"))
    port = free_port()
    with Deployment(tmp_path) as made:
        command = [COMMAND, "serve", str(tmp_path / "lab.py"), "--http", f"127.0.0.1:{port}"]
        server = HttpServer([*command, "--log-level", "critical"], made.environment, port)
        server.start()
        try:
            yield server.address
        finally:
            server.stop()


@pytest.mark.slow
def test_every_curl_line_of_the_page_gets_an_answer(address: str) -> None:
    if shutil.which("curl") is None:
        unavailable("curl is not installed")
    lines = re.findall(r"^curl .*$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) > 15
    with closing(Api(address)) as api:
        for line in lines:
            task_id = api.finished("count", steps=1) if "TASK_ID" in line else ""
            done = subprocess.run(
                ["bash", "-c", line.replace("TASK_ID", task_id)],
                env={"API": f"{address}/api/v1", "PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            if "stream" in line or "/events" in line:
                assert done.stdout.startswith(": open")
            elif "DELETE" in line:
                assert done.stdout == ""
            else:
                assert "code" not in json.loads(done.stdout), f"{line}\n{done.stdout}"
