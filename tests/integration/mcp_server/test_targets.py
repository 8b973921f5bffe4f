"""However a server is started, whoever runs its tasks finds its app; or it is refused at its start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.deployment import Deployment

pytestmark = pytest.mark.slow

PYTHON = sys.executable
BACKBURNER = (PYTHON, "-m", "backburner.cli")

#: Of either framework. The tool is in a module beside it, as most are.
SERVER = """
from {framework} import {kind}
from backburner import Backburner
{imports}

mcp = {kind}("lab")
mcp.tool()(double)
Backburner.attach(mcp, slow=["double"])
"""
GUARD = "\nif __name__ == '__main__':\n    mcp.run()\n"
MCPSERVER = {"framework": "mcp.server.mcpserver", "kind": "MCPServer"}
FASTMCP = {"framework": "fastmcp", "kind": "FastMCP"}
BESIDE, RELATIVE = "from tools import double", "from .tools import double"


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path, settings={"mcp__patience_s": "60"}) as made:
        # The tests are no part of what such a server finds.
        made.variables["PYTHONPATH"] = ""
        yield made


def write_server(folder: Path, text: str, *, package: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tools.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    if package:
        (folder / "__init__.py").touch()
    file = folder / "server.py"
    file.write_text(text)
    return file


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


async def doubled(deployment: Deployment, *command: str, cwd: Path) -> Any:
    """What the slow tool of a server says that this command starts, called by a plain client."""
    first, *words = command
    server = StdioServerParameters(command=first, args=words, env=deployment.environment, cwd=cwd)
    async with Client(stdio_client(server)) as client:
        result = await client.call_tool("double", {"x": 21})
    assert isinstance(result.content[0], types.TextContent)
    assert not result.is_error, result.content[0].text
    return result.content[0].text


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize(
    ("command", "server"),
    [
        ((PYTHON, "server.py"), MCPSERVER),
        ((program("mcp"), "run", "server.py:mcp"), MCPSERVER),
        ((program("fastmcp"), "run", "--no-banner", "server.py"), FASTMCP),
        ((program("mcp"), "run", "server.py"), MCPSERVER),
        ((PYTHON, "server.py"), FASTMCP),
        ((PYTHON, "-m", "server"), MCPSERVER),
        ((*BACKBURNER, "serve", "server.py"), FASTMCP),
        ((*BACKBURNER, "serve", "server.py:mcp"), MCPSERVER),
        ((program("backburner"), "serve", "server"), MCPSERVER),
    ],
    ids=lambda value: (
        value["kind"] if isinstance(value, dict) else " ".join(map(str, value)).rpartition("/")[2]
    ),
)
async def test_a_server_runs_its_tasks_by_whatever_command_it_is_started(
    deployment: Deployment, tmp_path: Path, command: tuple[str, ...], server: dict[str, str]
) -> None:
    folder = tmp_path / "code"
    write_server(folder, SERVER.format(imports=BESIDE, **server) + GUARD)
    assert await doubled(deployment, *command, cwd=folder) == "42"


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(
    "command",
    [
        (PYTHON, "-m", "pkg.server"),
        (program("backburner"), "serve", "pkg/server.py"),
        (program("backburner"), "serve", "pkg.server"),
        (program("backburner"), "serve", "pkg.server:mcp"),
    ],
    ids=lambda value: " ".join(value).rpartition("/")[2],
)
async def test_a_server_in_a_package_runs_its_tasks(
    deployment: Deployment, tmp_path: Path, command: tuple[str, ...]
) -> None:
    write_server(tmp_path / "pkg", SERVER.format(imports=RELATIVE, **MCPSERVER) + GUARD, package=True)
    assert await doubled(deployment, *command, cwd=tmp_path) == "42"


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("command", [(PYTHON,), (program("mcp"), "run")], ids=["python", "mcp run"])
async def test_a_script_in_the_folder_of_a_package_finds_what_is_beside_it(
    deployment: Deployment, tmp_path: Path, command: tuple[str, ...]
) -> None:
    write_server(tmp_path / "pkg", SERVER.format(imports=BESIDE, **MCPSERVER) + GUARD, package=True)
    assert await doubled(deployment, *command, "pkg/server.py", cwd=tmp_path) == "42"


async def test_a_server_that_serves_when_it_is_imported_is_served_by_its_server_alone(
    deployment: Deployment, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    write_server(folder, SERVER.format(imports=BESIDE, **MCPSERVER) + "\nmcp.run()\n")
    assert await doubled(deployment, PYTHON, "server.py", cwd=folder) == "42"


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("target", ["pkg/server.py", "pkg.server:mcp"])
def test_the_command_line_finds_an_app_in_a_package(
    deployment: Deployment, tmp_path: Path, target: str
) -> None:
    write_server(tmp_path / "pkg", SERVER.format(imports=RELATIVE, **MCPSERVER), package=True)
    done = subprocess.run(
        [program("backburner"), "call", "-t", target, "double", "x=21", "--json"],
        env=deployment.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout


# -- apps that are made in functions ---------------------------------------------------------------

FACTORY = """
from mcp.server.mcpserver import MCPServer
from backburner import Backburner
from tools import double


def make():
    mcp = MCPServer("lab")
    mcp.tool()(double)
    Backburner.attach(mcp, slow=["double"]{target})
    return mcp

"""
CALLED = "mcp = make()\nif __name__ == '__main__':\n    mcp.run()\n"
IN_MAIN = "if __name__ == '__main__':\n    make().run()\n"
WITH_TARGET = {"target": ', target="server.py:make"'}
WITHOUT = {"target": ""}


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(
    "text",
    [
        FACTORY.format(**WITHOUT) + CALLED,
        FACTORY.format(**WITHOUT) + "servers = {'one': make()}\nif __name__ == '__main__':\n"
        "    servers['one'].run()\n",
        FACTORY.format(**WITH_TARGET) + IN_MAIN,
    ],
    ids=["called at import", "held in a dict", "named as the target"],
)
async def test_an_app_that_a_function_makes_runs_its_tasks(
    deployment: Deployment, tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "code"
    write_server(folder, text)
    assert await doubled(deployment, PYTHON, str(folder / "server.py"), cwd=tmp_path) == "42"


async def test_a_factory_of_another_module_runs_its_tasks(deployment: Deployment, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    write_server(folder, "from factory import make\nmcp = make()\n" + GUARD)
    (folder / "factory.py").write_text(FACTORY.format(**WITHOUT))
    assert await doubled(deployment, PYTHON, "server.py", cwd=folder) == "42"


REFUSED = {
    "a function that the guard calls": (
        FACTORY.format(**WITHOUT) + IN_MAIN,
        (PYTHON, "server.py"),
        ["make()", 'Backburner.attach(..., target="server.py:make")'],
    ),
    "the guard itself": (
        FACTORY.partition("def")[0]
        + "if __name__ == '__main__':\n    mcp = MCPServer('lab')\n"
        + "    Backburner.attach(mcp, slow=['double'])\n",
        (PYTHON, "server.py"),
        ['if __name__ == "__main__"', 'Backburner.attach(..., target="server.py:make")'],
    ),
    "main of a package": (
        FACTORY.format(**WITHOUT).replace("make", "main").replace("from tools", "from .tools")
        + "if __name__ == '__main__':\n    main()\n",
        (PYTHON, "-m", "code_.server"),
        ["main()", 'Backburner.attach(..., target="code_.server:make")'],
    ),
    "a factory of fastmcp run": (
        FACTORY.format(**WITHOUT).replace("mcp.server.mcpserver", "fastmcp").replace("MCPServer", "FastMCP"),
        (program("fastmcp"), "run", "--no-banner", "server.py:make"),
        ["make()", 'Backburner.attach(..., target="server.py:make")'],
    ),
    "an entry point": (
        FACTORY.format(**WITHOUT),
        (PYTHON, "-c", "import server; server.make().run()"),
        ["make()", 'Backburner.attach(..., target="server:make")'],
    ),
    "a factory of uvicorn": (
        FACTORY.format(**WITHOUT) + "def web():\n    return make().streamable_http_app()\n",
        (PYTHON, "-m", "uvicorn", "--factory", "--port", "0", "server:web"),
        ["make()", 'Backburner.attach(..., target="server:make")'],
    ),
    "no file at all": (
        "",
        (PYTHON, "-c", "from backburner import Backburner; Backburner('lab').run()"),
        ["put it into a .py file"],
    ),
}


@pytest.mark.whole(but_first=2)
@pytest.mark.parametrize("case", REFUSED)
def test_an_app_that_no_other_process_would_find_is_refused_before_it_serves(
    deployment: Deployment, tmp_path: Path, case: str
) -> None:
    text, command, told = REFUSED[case]
    in_package = "code_.server" in command
    folder = tmp_path / "code_"
    write_server(folder, text, package=in_package)
    done = subprocess.run(
        command,
        env=deployment.environment,
        cwd=tmp_path if in_package else folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    said = " ".join(done.stderr.replace("│", " ").split())
    assert [words for words in told if words not in said] == [], done.stderr


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nowhere.py:make", "nowhere.py"),
        ("no_such_package.server:make", "no_such_package"),
        ("server.py:mkae", "mkae"),
    ],
)
def test_a_target_that_names_nothing_is_refused_at_once(
    deployment: Deployment, tmp_path: Path, target: str, told: str
) -> None:
    file = write_server(tmp_path / "code", FACTORY.format(target=f", target={target!r}") + IN_MAIN)
    done = subprocess.run(
        [PYTHON, str(file)],
        env=deployment.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "target" in last
    assert told in last
