"""The systemd unit of the guide: it is one, and its line works as systemd would run it."""

from __future__ import annotations

import configparser
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from backburner.settings import SupervisorSettings
from tests.integration.cli.conftest import COMMAND, Lab

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "deploy-systemd.md"


@pytest.fixture
def unit() -> str:
    found = re.search(
        r"```ini\n# /etc/systemd/system/[\w-]+\.service\n(.*?)```", GUIDE.read_text(), re.DOTALL
    )
    assert found is not None
    return found[1]


def parsed(unit: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit)
    return parser["Service"]


def test_the_line_of_the_unit_works_and_ends_well_when_systemd_says_so(lab: Lab, unit: str) -> None:
    service = parsed(unit)
    folder = Path(service["WorkingDirectory"])
    command, *words = service["ExecStart"].split()
    assert Path(command).name == "backburner"
    words = [str(lab.folder / Path(word).relative_to(folder)) if "/" in word else word for word in words]
    environment = {"PATH": "/usr/bin:/bin", "TEST_RUN_DIRECTORY": str(lab.folder)}
    task_id = lab.submit("add", a=1)
    worker = subprocess.Popen(
        [*COMMAND, *words], cwd=lab.folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        lab.wait_for_state(task_id, "succeeded")
    finally:
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=30)
    assert (worker.returncode, "The worker has exited" in said) == (0, True), said


def test_the_unit_gives_tasks_their_grace_and_comes_back(unit: str) -> None:
    service = parsed(unit)
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) > SupervisorSettings().drain_grace_s
    assert service["Restart"] == "always"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(lab: Lab, unit: str) -> None:
    file = lab.folder / "backburner-lab.service"
    file.write_text(
        unit.replace("/opt/lab/venv/bin/backburner", COMMAND[0]).replace("/opt/lab", str(lab.folder))
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
