"""The official conformance suite, as its authors run it."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server import harness
from tests.system.interop import environment
from tests.system.interop.serving import of_others, serving

pytestmark = pytest.mark.slow

SERVER = Path(harness.__file__).with_name("conformance_server.py")
TASK_SCENARIOS = {
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-wire-fields",
}
#: A stub of the suite's, which it always skips.
STUB = "tasks-status-notifications"


@dataclass
class Report:
    """What the suite said: its exit code, and for each scenario its checks."""

    exit_code: int
    output: str
    checks: dict[str, list[dict[str, Any]]]

    def statuses(self, scenario: str) -> set[str]:
        return {check["status"] for check in self.checks[scenario]}

    @property
    def complaints(self) -> list[str]:
        return [
            f"{scenario}: {check['id']}: {check.get('errorMessage')}"
            for scenario, checks in self.checks.items()
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        ]

    @property
    def passing_task_scenarios(self) -> set[str]:
        """Those of which every check succeeded. The suite's exit code does not always count them."""
        return {
            name for name in self.checks if name.startswith("tasks-") and self.statuses(name) == {"SUCCESS"}
        }


@pytest.fixture(scope="module")
def url(shared: Deployment) -> Iterator[str]:
    of_others(environment.conformance)
    with serving(shared, SERVER) as address:
        yield address


def run_suite(url: str, folder: Path, *choice: str) -> Report:
    command = [*of_others(environment.conformance), "server", "--url", url, *choice, "-o", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    checks = {}
    for file in folder.glob("server-*/checks.json"):
        scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", file.parent.name)
        assert scenario, file
        checks[scenario[1]] = json.loads(file.read_text())
    return Report(ran.returncode, ran.stdout + ran.stderr, checks)


def test_every_scenario_of_the_suite_passes(url: str, tmp_path: Path) -> None:
    report = run_suite(url, tmp_path, "--suite", "all")
    assert report.complaints == []
    assert report.exit_code == 0, report.output
    assert report.passing_task_scenarios == TASK_SCENARIOS
    assert {name for name in report.checks if name.startswith("tasks-")} == TASK_SCENARIOS | {STUB}


@pytest.mark.whole
def test_the_requirements_of_2026_07_28_are_met_and_so_are_the_tasks(url: str, tmp_path: Path) -> None:
    report = run_suite(url, tmp_path, "--requirements", "2026-07-28")
    assert report.complaints == []
    assert report.exit_code == 0, report.output
    assert report.passing_task_scenarios == TASK_SCENARIOS


@pytest.mark.whole
def test_the_requirements_of_2025_11_25_are_met(url: str, tmp_path: Path) -> None:
    report = run_suite(url, tmp_path, "--requirements", "2025-11-25")
    assert report.complaints == []
    assert report.exit_code == 0, report.output
    assert len(report.checks) > 30
