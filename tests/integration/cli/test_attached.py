"""The command line with an app that is attached to a server, and with PostgreSQL."""

from __future__ import annotations

import textwrap

import pytest

from tests.integration.cli.conftest import Lab

SERVER = """
from mcp.server.mcpserver import MCPServer
from backburner import Backburner

server = MCPServer("shop")


@server.tool()
def index_goods(shelf: int) -> dict[str, int]:
    \"\"\"Count what is on a shelf.\"\"\"
    return {"goods": shelf * 2}


@server.tool()
def quick() -> str:
    return "at once"


bb = Backburner.attach(server, slow=["index_*"], store="sqlite:///shop.db", supervisor={"idle_exit_s": 1})
"""


@pytest.mark.slow
def test_the_slow_tools_of_an_attached_server_can_be_listed_and_called(lab: Lab) -> None:
    (lab.folder / "shop.py").write_text(textwrap.dedent(SERVER))
    (tool,) = lab.json("tools", "-t", "shop.py")["tools"]
    assert (tool["tool_name"], tool["description"]) == ("index_goods", "Count what is on a shelf.")
    assert lab.json("call", "index_goods", "shelf=4", "-t", "shop.py")["result"] == {"goods": 8}
    refused = lab.run("call", "index_goods", "shelf=many", "-t", "shop.py")  # by the server's framework
    assert (refused.returncode, "shelf" in refused.stderr) == (1, True)
    assert lab.run("submit", "quick", "-t", "shop.py").returncode == 2


@pytest.mark.whole
def test_every_kind_of_verb_works_on_postgresql(lab: Lab, postgres_database: str) -> None:
    place = ["--store", postgres_database]
    assert lab.json("migrate", *place, BACKBURNER_TARGET="")["version"] >= 3
    assert lab.run("call", "add", "a=1", *place).stdout == "3\n"
    (task,) = lab.json("ls", *place, BACKBURNER_TARGET="")["tasks"]
    assert lab.json("show", task["task_id"], *place)["state"] == "succeeded"
    assert lab.json("doctor", *place)["healthy"] is True
    gone = lab.run("ls", "--store", "postgresql://nobody@127.0.0.1:1/none", BACKBURNER_TARGET="")
    assert gone.returncode == 4
