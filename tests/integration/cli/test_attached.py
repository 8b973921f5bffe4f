"""The command line with an app that is attached to a server, and with PostgreSQL."""

from __future__ import annotations

import contextlib
import re
import textwrap

import pytest

from tests.integration.cli.conftest import Lab, Worker

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
    assert lab.run("call", "--detach", "quick", "-t", "shop.py").returncode == 2


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


@pytest.mark.slow
def test_a_progress_bar_that_a_tool_prints_is_one_line_that_moves(lab: Lab, worker: Worker) -> None:
    gate = lab.gate()
    task_id = lab.submit("bar", gate=gate.path)
    with contextlib.closing(lab.terminal("logs", "-f", task_id)) as terminal:
        terminal.wait_for(r"50%\|##")
        live = lab.json("logs", task_id)["lines"]
        assert [line["message"] for line in live] == ["50%|##\r"]
        gate.open()
        terminal.wait_for(r"50%\|##.*\x1b\[2K.*90%\|##")
        (lab.folder / f"{gate.path}-2").touch()
        assert terminal.end() == 0
    seen = re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen)
    assert re.search(r"90%\|##\r\r\x1b\[2K100%\|##\nafter the bar\n$", seen), seen
    assert lab.run("logs", task_id).stdout == "100%|##\nafter the bar\n"


LOGGING = """
import logging
from {module} import {kind}
from backburner import Backburner

server = {kind}("shop")
library = logging.getLogger("library")
library.addHandler(logging.StreamHandler())


@server.tool()
def index_goods() -> str:
    logging.getLogger("shop").info("by the root")
    library.warning("by a handler of its own")
    late = logging.getLogger("late")
    late.addHandler(logging.StreamHandler())
    late.warning("by a handler that the tool made")
    print("printed")
    return "indexed"


bb = Backburner.attach(server, slow="index_*", store="sqlite:///shop.db", supervisor={{"idle_exit_s": 1}})
"""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "kind"), [("mcp.server.mcpserver", "MCPServer"), ("fastmcp", "FastMCP")])
def test_what_a_tool_logs_is_in_its_log_once(lab: Lab, module: str, kind: str) -> None:
    (lab.folder / "shop.py").write_text(LOGGING.format(module=module, kind=kind))
    task_id = lab.json("call", "index_goods", "-t", "shop.py")["task_id"]
    lines = [line["message"] for line in lab.json("logs", task_id, "-t", "shop.py")["lines"]]
    for said in ("by the root", "by a handler of its own", "by a handler that the tool made", "printed"):
        assert lines.count(said) == 1, lines
        assert sum(said in line for line in lines) == 1, lines
