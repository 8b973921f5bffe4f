"""Both ends of the range of SDKs that pyproject.toml admits, with a server of each framework."""

import json
import os
from pathlib import Path

import pytest

from tests.deployment import ROOT
from tests.integration.mcp_server.harness import deploy
from tests.system.interop import environment
from tests.system.interop.serving import of_others

# The first one may have to make its environment.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DONE = {"text": "slow done n=3", "status": "completed"}
EXPECTED = {
    "listed": {"there": ["fast", "slow", "wait_for_task"]},
    "as_a_task_of_2026": DONE,
    "as_a_task_of_2025": DONE,
    "plainly": {"text": "slow done n=3"},
    "by_our_client": {**DONE, "dialect": "2026-07-28"},
}


# A lowlevel server is inside both of the others.
@pytest.mark.whole
@pytest.mark.parametrize(
    ("sdk", "kind"),
    [
        ("sdk-oldest", "mcpserver"),
        ("sdk-newest", "fastmcp"),
        ("sdk-oldest", "lowlevel"),
        ("sdk-oldest", "fastmcp"),
        ("sdk-newest", "mcpserver"),
    ],
)
def test_a_slow_tool_can_be_called_in_every_way(tmp_path: Path, sdk: str, kind: str) -> None:
    (interpreter,) = of_others(lambda: [str(environment.python(sdk))])
    with deploy(tmp_path, kind) as deployment:
        deployment.interpreter = interpreter
        deployment.variables |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        with deployment.http() as server:
            targets = (["http", server.url], ["stdio", *deployment.command("stdio")])
            every_way = environment.CLIENTS / "every_way.py"
            for program in [deployment.run(every_way, *target) for target in targets]:
                try:
                    said, _ = program.communicate(timeout=100)
                finally:
                    program.kill()
                outcomes = [json.loads(line) for line in said.splitlines()]
                assert {outcome.pop("scenario"): outcome for outcome in outcomes} == EXPECTED
