"""Where an app keeps its tasks, and which of its tools are slow: the same from wherever one looks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests import warm
from tests.integration.cli.conftest import COMMAND, Lab

SERVER = """
from mcp.server.mcpserver import MCPServer
from backburner import Backburner

mcp = MCPServer("shop")


@mcp.tool()
def index_goods(shelf: int) -> int:
    return shelf * 2


Backburner.attach(
    mcp, slow=["index_*", "idnex_shelves"], store="sqlite:///shop.db", supervisor={"idle_exit_s": 1}
)

if __name__ == "__main__":
    mcp.run()
"""


@pytest.fixture
def elsewhere(lab: Lab) -> Path:
    folder = lab.folder / "elsewhere"
    folder.mkdir()
    return folder


def run_from(folder: Path, lab: Lab, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    merged = {**lab.environment, "BACKBURNER_TARGET": "", **variables}
    return subprocess.run(
        [*COMMAND, *words],
        cwd=folder,
        env={key: value for key, value in merged.items() if value},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def listed_by_a_client(lab: Lab, file: str, cwd: Path) -> str:
    """What a server says to stderr while a client lists its tools."""
    environment = {name: value for name, value in lab.environment.items() if name != "BACKBURNER_TARGET"}
    server = StdioServerParameters(command=warm.PYTHON, args=[file], env=environment, cwd=cwd)
    with (lab.folder / "stderr").open("w+") as stderr:
        async with Client(stdio_client(server, errlog=stderr)) as client:
            await client.list_tools()
            await client.list_tools()
        stderr.seek(0)
        return stderr.read()


@pytest.mark.slow
async def test_a_relative_store_is_beside_the_app_s_file_for_every_verb_and_for_the_server(
    lab: Lab, elsewhere: Path
) -> None:
    target = ("-t", str(lab.folder / "lab.py"))
    assert run_from(elsewhere, lab, "call", "add", "a=1", *target).stdout == "3\n"
    assert "succeeded" in run_from(elsewhere.parent, lab, "ls", *target).stdout
    assert "succeeded" in run_from(elsewhere, lab, "ls", "-t", "../lab.py").stdout

    (lab.folder / "shop.py").write_text(SERVER)
    said = await listed_by_a_client(lab, "../shop.py", elsewhere)
    assert said.count(f"{lab.folder}/shop.db") == 1
    assert (lab.folder / "shop.db").exists()
    assert os.listdir(elsewhere) == []


def test_a_store_on_the_command_line_or_in_the_environment_is_relative_to_the_working_folder(
    lab: Lab, elsewhere: Path
) -> None:
    assert run_from(elsewhere, lab, "migrate", "--store", "sqlite:///own.db").returncode == 0
    assert run_from(elsewhere, lab, "migrate", BACKBURNER_STORE="sqlite:///other.db").returncode == 0
    assert sorted(path.name for path in elsewhere.glob("*.db")) == ["other.db", "own.db"]


def test_a_store_in_a_settings_file_is_relative_to_that_file(lab: Lab, elsewhere: Path) -> None:
    settings = lab.folder / "settings.toml"
    settings.write_text('store = "sqlite:///from_file.db"\n')
    assert run_from(elsewhere, lab, "migrate", BACKBURNER_CONFIG=str(settings)).returncode == 0
    assert (lab.folder / "from_file.db").exists()


@pytest.mark.slow
async def test_a_pattern_that_no_tool_has_is_told_by_the_server_once_and_by_doctor(lab: Lab) -> None:
    (lab.folder / "shop.py").write_text(SERVER)
    said = await listed_by_a_client(lab, "shop.py", lab.folder)
    assert said.count("idnex_shelves") == 1
    findings = lab.json("doctor", "-t", "shop.py")["findings"]
    (finding,) = (one for one in findings if "idnex_shelves" in one["message"])
    assert (finding["check"], finding["level"]) == ("tools", "warning")
    assert "index_goods" in finding["advice"]


LOST = """
import sys
from mcp.server.mcpserver import MCPServer
from backburner import Backburner

mcp = MCPServer("shop")
SHELVES = 1


@mcp.tool()
def index_goods() -> int:
    return SHELVES


Backburner.attach(
    mcp, slow={"index_*": {"answer": "handle"}}, store="sqlite:///shop.db", supervisor={"idle_exit_s": 1}
)


def main() -> None:
    global SHELVES
    SHELVES = 3
    mcp.run()


if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
async def test_what_an_app_asks_for_in_vain_is_told_by_its_server_and_by_doctor(lab: Lab) -> None:
    (lab.folder / "shop.py").write_text(LOST)
    said = await listed_by_a_client(lab, "shop.py", lab.folder)
    assert said.count("shop.py:22 sets SHELVES") == 1
    found = [one for one in lab.json("doctor", "-t", "shop.py")["findings"] if one["level"] == "warning"]
    (lost,) = (one["message"] for one in found if one["check"] == "app")
    assert "shop.py:22 sets SHELVES" in lost
    (held,) = (one["message"] for one in found if one["check"] == "tools")
    assert "index_goods: its output schema does not allow a handle" in held
