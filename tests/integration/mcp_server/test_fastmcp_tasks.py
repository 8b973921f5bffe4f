"""FastMCP's own words for slow tools, `task=True` and `TaskConfig`, mark slow tools of Backburner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

import backburner
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.system.interop import environment
from tests.system.interop.serving import of_others
from tests.system.test_guides import DOCS

BOTH = """
import os, sys
from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension
sys.path += sys.argv[1].split(os.pathsep)
from backburner import Backburner
mcp = FastMCP("both")
mcp.add_extension(TasksExtension())
bb = Backburner.attach(mcp, store="sqlite:///both.db")
"""

pytestmark = pytest.mark.slow
PAGE = DOCS / "guides" / "migrate-from-fastmcp-tasks.md"


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    server = tmp_path / "lab.py"
    server.write_text(PAGE.read_text().split("```python\n")[1].split("```")[0])
    with Deployment(tmp_path, (server,), {"mcp__patience_s": "60"}) as made:
        yield made


async def test_the_server_of_the_guide_runs_its_marked_tools_as_tasks(deployment: Deployment) -> None:
    async with connect(deployment.stdio(), "2026") as peer:
        done = await peer.poll(await peer.start("crunch"))
        assert done["result"]["content"][0]["text"] == "3 rounds"
        done = await peer.poll(await peer.start("sync_crunch"))
        assert done["result"]["content"][0]["text"] == "3 rounds in its own process"
        done = await peer.poll(await peer.start("index", {"folder": "/x"}))
        assert done["result"]["content"][0]["text"] == "/x indexed"
    async with connect(deployment.stdio(), "2026", tasks=False) as peer:
        assert (await peer.call("crunch"))["content"][0]["text"] == "3 rounds"
        with pytest.raises(MCPError) as refused:
            await peer.call("index", {"folder": "/x"})
        assert refused.value.code == -32021


def test_both_kinds_of_tasks_at_once_are_refused_with_what_to_change(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(BOTH)
    # The package of FastMCP's tasks is in that environment alone, and what we need of others is in ours.
    command = of_others(lambda: [str(environment.python("fastmcp"))])
    ours = os.pathsep.join([str(Path(backburner.__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [*command, "both.py", ours], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "Remove mcp.add_extension(TasksExtension(...))" in done.stderr, done.stderr
