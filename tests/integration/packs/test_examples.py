"""The examples, each started as a host would start it, and the hosts' settings."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests import warm
from tests.deployment import Deployment

EXAMPLES = Path(__file__).parents[3] / "examples"
HOSTS = EXAMPLES / "hosts"
SERVERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "first.py": ("count_primes", {"up_to": 30}, "10"),
    "attached_mcpserver.py": ("index_books", {"count": 3}, "3 books indexed"),
    "attached_fastmcp.py": ("index_books", {"count": 3}, "3 books indexed"),
    "questions.py": ("book_train", {"destination": "Oslo"}, "window"),
    "artifacts.py": ("random_walks", {"walks": 20}, "largest"),
}


async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    asked_for = getattr(params, "requested_schema", {}).get("properties", {})
    return types.ElicitResult(action="accept", content={"seat": "window"} if "seat" in asked_for else {})


async def call(
    deployment: Deployment, words: list[str], tool: str, arguments: dict[str, Any]
) -> types.CallToolResult:
    server = StdioServerParameters(command=warm.PYTHON, args=words, env=deployment.environment)
    async with Client(stdio_client(server), mode="legacy", elicitation_callback=answer) as client:
        names = [listed.name for listed in (await client.list_tools()).tools]
        assert tool in names
        result = await client.call_tool(tool, arguments)
        task = re.search(r"as task (tsk_\w+)", str(result.content))
        # It took longer than this client waits, so the answer says how to follow the task.
        while task and not (result.structured_content or {}).get("finished"):
            result = await client.call_tool("wait_for_task", {"task_id": task[1], "timeout_s": 60})
        return result


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize("name", SERVERS)
def test_each_example_serves_and_runs_its_tool(name: str, deployment: Deployment) -> None:
    tool, arguments, expected = SERVERS[name]
    result = asyncio.run(call(deployment, [str(EXAMPLES / name)], tool, arguments))
    assert not result.is_error, result
    assert expected in json.dumps(result.model_dump(mode="json")["content"])


def test_a_pack_is_served_by_its_name(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("a")
    words = ["-m", "backburner.cli", "serve", "backburner.packs.files"]
    arguments = {"path": str(tmp_path / "tree")}
    result = asyncio.run(call(deployment, words, "wksm_monitor_sync", arguments))
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
