"""The examples, each started as a host would start it, and the hosts' settings."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.packs.conftest import end_supervisor

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTS = EXAMPLES / "hosts"
SERVERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "first.py": ("count_primes", {"up_to": 30}, "10"),
    "attached_mcpserver.py": ("index_books", {"count": 3}, "3 books indexed"),
    "attached_fastmcp.py": ("index_books", {"count": 3}, "3 books indexed"),
    "questions.py": ("book_train", {"destination": "Oslo"}, "window"),
    "artifacts.py": ("random_walks", {"walks": 20}, "largest"),
}


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    data = tmp_path / "data"
    own = {"BACKBURNER_STORE": f"sqlite:///{tmp_path}/tasks.db", "BACKBURNER_DATA_DIR": str(data)}
    yield {**os.environ, **own}
    end_supervisor(data)


async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    asked_for = getattr(params, "requested_schema", {}).get("properties", {})
    return types.ElicitResult(action="accept", content={"seat": "window"} if "seat" in asked_for else {})


async def call(
    command: list[str], environment: dict[str, str], tool: str, arguments: dict[str, Any]
) -> types.CallToolResult:
    server = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    async with Client(stdio_client(server), mode="legacy", elicitation_callback=answer) as client:
        names = [listed.name for listed in (await client.list_tools()).tools]
        assert tool in names
        result = await client.call_tool(tool, arguments)
        task = re.search(r"as task (tsk_\w+)", str(result.content))
        if task is None:
            return result
        # It took longer than this client waits, so the answer says how to follow the task.
        return await client.call_tool("wait_for_task", {"task_id": task[1], "timeout_s": 60})


@pytest.mark.parametrize("name", SERVERS)
def test_each_example_serves_and_runs_its_tool(name: str, environment: dict[str, str]) -> None:
    tool, arguments, expected = SERVERS[name]
    result = asyncio.run(call([sys.executable, str(EXAMPLES / name)], environment, tool, arguments))
    assert not result.is_error, result
    assert expected in json.dumps(result.model_dump(mode="json")["content"])


def test_a_pack_is_served_by_its_name(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("a")
    command = [sys.executable, "-m", "backburner.cli", "serve", "backburner.packs.files"]
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    arguments = {"path": str(tmp_path / "tree")}
    result = asyncio.run(call(command, environment, "wksm_monitor_sync", arguments))
    assert not result.is_error, result
    assert '"files_processed": 1' in json.dumps(result.model_dump(mode="json")).replace('\\"', '"')


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SERVERS.keys()


def test_the_settings_of_every_host_start_the_first_example() -> None:
    read = {".json": json.loads, ".toml": tomllib.loads}
    entries: dict[str, Any] = {}
    for path in HOSTS.iterdir():
        if path.suffix in read:
            (servers,) = read[path.suffix](path.read_text()).values()
            entries[path.name] = servers["first"]
    assert len(entries) == 5
    for entry in entries.values():
        assert (entry["command"], entry["args"]) == ("python", ["/path/to/first.py"])
    explained = (HOSTS / "README.md").read_text()
    assert all(f"`{name}`" in explained for name in entries)
