"""Real clients of both protocol generations run slow tools, over stdio and over HTTP.

Each client is a program of its own in `clients/`, which goes through all scenarios and prints a line of
JSON about each. The tables here say what each line must hold.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.system.interop import environment
from tests.system.interop.serving import of_others, serving

pytestmark = pytest.mark.slow

Outcome = dict[str, Any]

LATE = "The task ran longer than its limit of 0.5 s."
UNKNOWN = "Failed to retrieve task: Task not found"
MUST = "Tool 'must' can only be called as a task: add `task` to the call"

SHARED: dict[str, Outcome] = {
    "working": {"seen": ["working"], "status": "completed", "text": "slow done n=3", "isError": False},
    "input_required": {
        "seen": ["input_required"],
        "asked": ["Your name?"],
        "status": "completed",
        "text": "Hello, Ada!",
    },
    "cancelled": {"status": "cancelled"},
    "unknown_id": {"code": -32602, "message": UNKNOWN},
    "plain_call": {"text": "slow done n=3"},
}
OF_2026 = SHARED | {
    "tool_error": {"status": "completed", "text": "it broke", "isError": True},
    "timed_out": {"status": "failed", "code": -32603, "message": LATE},
    "missing_capability": {"code": -32021, "message": "Missing required client capability"},
}
OF_2025 = SHARED | {
    "tool_error": {"status": "failed", "message": "it broke"},
    "timed_out": {"status": "failed", "message": LATE},
    "missing_capability": {"code": -32601, "message": MUST},
}
# This client reads nothing of a task that failed but its status, and puts the code before each message.
OF_TYPESCRIPT_1 = OF_2025 | {
    "tool_error": {"status": "failed", "code": -32603, "message": "MCP error -32603: Task TASK failed"},
    "timed_out": {"status": "failed", "code": -32603, "message": "MCP error -32603: Task TASK failed"},
    "unknown_id": {"code": -32602, "message": f"MCP error -32602: {UNKNOWN}"},
    "missing_capability": {"code": -32601, "message": f"MCP error -32601: {MUST}"},
}


def in_python(interpreter: str, program: str) -> list[str]:
    return [interpreter, "-W", "ignore", str(environment.CLIENTS / program)]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "typescript_2": lambda: [*environment.node_program("typescript_2.mjs"), "modern"],
    "typescript_2_legacy": lambda: [*environment.node_program("typescript_2.mjs"), "legacy"],
    "typescript_1": lambda: environment.node_program("typescript_1.mjs"),
    "mcp_2": lambda: in_python(sys.executable, "python_mcp_2.py"),
    "mcp_1": lambda: in_python(str(environment.python("mcp1")), "python_mcp_1.py"),
    "fastmcp_4": lambda: in_python(str(environment.python("fastmcp")), "python_fastmcp_4.py"),
}
EXPECTED: dict[str, dict[str, Outcome]] = {
    "typescript_2": OF_2026,
    "typescript_2_legacy": OF_2025,
    "typescript_1": OF_TYPESCRIPT_1,
    "mcp_2": OF_2026,
    # It reads the result of a task that failed, too.
    "mcp_1": OF_2025 | {"tool_error": {"status": "failed", "text": "it broke", "isError": True}},
    "fastmcp_4": OF_2026,
}
#: Those that `make test` runs: one of each language and line. Other tests use `mcp_2` all the time.
USUAL = ("typescript_2", "mcp_1", "fastmcp_4")


class Programs:
    """Runs each client program once over each transport, and keeps what it said."""

    def __init__(self, deployment: Deployment, url: str) -> None:
        self._environment = deployment.environment
        self._servers = {
            "http": ["http", url],
            "stdio": ["stdio", *deployment.command("stdio")],
        }
        self._said: dict[str, dict[str, dict[str, Outcome]]] = {}

    def outcome(self, client: str, transport: str, scenario: str) -> Outcome:
        if client not in self._said:
            self._said[client] = self._run(of_others(COMMANDS[client]))
        said = self._said[client][transport]
        assert scenario in said, said
        return said[scenario]

    def _run(self, command: list[str]) -> dict[str, dict[str, Outcome]]:
        """Over both transports at the same time."""
        processes = {
            transport: subprocess.Popen(
                [*command, *server],
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for transport, server in self._servers.items()
        }
        try:
            return {transport: _said(process) for transport, process in processes.items()}
        finally:
            for process in processes.values():
                process.kill()
                process.communicate()


def _said(process: subprocess.Popen[str]) -> dict[str, Outcome]:
    """What a program said about each scenario; what it wrote to stderr is there when it says nothing."""
    try:
        output, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        errors += "\nit took too long"
    lines = [json.loads(re.sub(r"tsk_\w{30,}", "TASK", line)) for line in output.splitlines()]
    return {line["scenario"]: line for line in lines} or {"": {"stderr": errors}}


@pytest.fixture(scope="module")
def programs(shared: Deployment) -> Iterator[Programs]:
    with serving(shared) as url:
        yield Programs(shared, url)


@pytest.mark.parametrize(
    ("client", "transport", "scenario"),
    [
        pytest.param(
            client,
            transport,
            scenario,
            id=f"{client}-{transport}-{scenario}",
            marks=() if client in USUAL else pytest.mark.whole,
        )
        for client, expected in EXPECTED.items()
        for transport in ("http", "stdio")
        for scenario in expected
    ],
)
def test_a_client_is_answered_as_it_expects(
    programs: Programs, client: str, transport: str, scenario: str
) -> None:
    expected = EXPECTED[client][scenario]
    outcome = programs.outcome(client, transport, scenario)
    assert {key: outcome.get(key) for key in expected if key != "seen"} == {
        key: value for key, value in expected.items() if key != "seen"
    }
    assert set(expected.get("seen", ())) <= set(outcome.get("seen", ()))
