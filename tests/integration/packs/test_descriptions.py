"""A model that reads the list of a pack's tools is told what each of their inputs is for.

The task tools are described by their names and a sentence, since every request of a host carries them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from backburner import packs
from backburner.mcp.dialects.task_tools.schemas import SCHEMAS
from tests import warm
from tests.deployment import Deployment

NAMES = [found.name for found in pkgutil.iter_modules(packs.__path__)]
SOME = {
    "demo": {"count_primes", "wksm_monitor_sync", "submit_task"},
    "files": {"wksm_vault_index", "wksm_vault_search", "wksm_transform_batch"},
    "science": {"run_geometry_optimization", "run_parameter_sweep"},
}


def undescribed(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        if not str(part.get("description", "")).strip():
            yield f"{path}.{name}"
        yield from undescribed(part, f"{path}.{name}")


@pytest.mark.parametrize("name", NAMES)
async def test_every_input_of_every_tool_is_described(name: str, deployment: Deployment) -> None:
    words = ["-m", "backburner.cli", "serve", f"backburner.packs.{name}"]
    server = StdioServerParameters(command=warm.PYTHON, args=words, env=deployment.environment)
    async with Client(stdio_client(server), mode="legacy") as client:
        tools = (await client.list_tools()).tools
    assert SOME[name] <= {tool.name for tool in tools}
    own = [tool for tool in tools if tool.name not in SCHEMAS]
    assert [path for tool in own for path in undescribed(tool.input_schema, tool.name)] == []
    assert [tool.name for tool in tools if not tool.description] == []


def test_every_pack_is_looked_at() -> None:
    assert set(NAMES) == SOME.keys()
