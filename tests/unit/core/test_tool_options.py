"""Options of tools are checked when they are given, for `@bb.tool` and for the tools of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client as FastMCPClient
from fastmcp import FastMCP
from mcp.client import Client
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from backburner import Backburner
from backburner.errors import ConfigError, ToolDefinitionError
from backburner.mcp.adapters.servers import discover_tools

#: No process looks for these apps.
HERE = f"{Path(__file__).name}:attach"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a mistyped name": ({"retry": 2}, "no option 'retry', did you mean 'retries'? known: answer, ask_first"),
    "a field of ours": ({"is_async": True}, "no option 'is_async'"),
    "another field of ours": ({"input_schema": {}}, "no option 'input_schema'"),
    "a queue that is not there": ({"queue": "gpu"}, "the queue 'gpu', which is not configured; known: cpu_"),
    "a mode that is not there": ({"answer": "later"}, "answer='later' is not one of auto, hold, handle"),
    "a number as text": ({"retries": "2"}, "retries='2' is not a number from 0 on, or a Retry"),
    "a negative amount": ({"memory_mb": -1}, "memory_mb=-1 is not a number over 0"),
    "a limit of nothing": ({"max_running": 0}, "max_running=0 is not a whole number"),
    "a time that is none": ({"timeout": "soon"}, "work.timeout"),
    "a flag as text": ({"card": "no"}, "card='no' is not True or False"),
}


@pytest.fixture
def server() -> MCPServer[Any]:
    made: MCPServer[Any] = MCPServer("lab")

    @made.tool()
    def work() -> str:
        return "done"

    @made.tool()
    def quick() -> str:
        return "at once"

    return made


def attach(server: MCPServer[Any] | FastMCP, folder: Path, slow: Any) -> Backburner:
    return Backburner.attach(server, slow=slow, store=f"sqlite:///{folder}/lab.db", target=HERE)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_option_is_refused_when_it_is_given(
    wrong: str, server: MCPServer[Any], tmp_path: Path
) -> None:
    options, words = WRONG[wrong]
    with pytest.raises((ToolDefinitionError, ConfigError)) as of_server:
        attach(server, tmp_path, {"work": options})
    app = Backburner("own", store=f"sqlite:///{tmp_path}/own.db", target=HERE)
    with pytest.raises((ToolDefinitionError, ConfigError)) as of_function:
        app.tool(name="work", **options)(lambda: None)
    for error in (of_server, of_function):
        assert words in str(error.value)
        assert "work" in str(error.value)


@pytest.mark.parametrize("slow", [{"work": "4h"}, [{"work": {}}], [7], 7, {7: {}}])
def test_slow_that_names_no_tools_is_refused(slow: Any, server: MCPServer[Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="slow"):
        attach(server, tmp_path, slow)


async def test_slow_may_be_one_name(server: MCPServer[Any], tmp_path: Path, inline_tasks: Any) -> None:
    app = attach(server, tmp_path, "work")
    inline_tasks(app)
    await discover_tools(app)
    assert [spec.name for spec in app.tools] == ["work"]


async def test_options_are_the_annotations_of_a_function_and_an_attached_tool_keeps_its_own(
    tmp_path: Path, inline_tasks: Any
) -> None:
    own = Backburner("own", store=f"sqlite:///{tmp_path}/own.db", target=HERE)
    hints = {"read_only": True, "destructive": False, "idempotent": True, "open_world": False}
    own.tool(name="look", title="Look", **hints)(lambda: None)
    own.tool(name="other")(lambda: None)
    attached: MCPServer[Any] = MCPServer("lab")
    attached.tool(name="work", annotations=ToolAnnotations(read_only_hint=True))(lambda: None)
    inline_tasks(own)
    inline_tasks(attach(attached, tmp_path, "work"))
    shown: dict[str, ToolAnnotations | None] = {}
    for server in (own.mcp_server(), attached):
        async with Client(server, mode="legacy") as client:
            shown |= {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    assert shown["other"] is None
    assert (shown["look"], shown["work"]) == (
        ToolAnnotations(
            title="Look",
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
        ToolAnnotations(read_only_hint=True),
    )
    with pytest.raises(ToolDefinitionError, match="no option 'read_only'"):
        attach(MCPServer("another"), tmp_path, {"work": {"read_only": True}})


def test_one_name_of_a_secret_is_one_secret(tmp_path: Path) -> None:
    app = Backburner("own", store=f"sqlite:///{tmp_path}/own.db", target=HERE)
    app.tool(name="login", secrets="key")(lambda key: None)
    assert app.tools.get("login").masked({"key": "1234"}) == {"key": "***"}


def test_a_second_attach_to_a_server_is_refused(server: MCPServer[Any], tmp_path: Path) -> None:
    attach(server, tmp_path, "work")
    with pytest.raises(ConfigError, match="lab is attached already"):
        attach(server, tmp_path, "quick")


async def test_a_tool_that_cannot_be_a_task_leaves_the_others_as_they_are(
    server: MCPServer[Any], tmp_path: Path, inline_tasks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_tool(lambda: "odd", name="an odd name!")
    app = attach(server, tmp_path, ["work", "an *"])
    inline_tasks(app)
    async with Client(server, mode="legacy") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names >= {"work", "quick", "an odd name!"}
        for name, said in (("work", "done"), ("quick", "at once"), ("an odd name!", "odd")):
            assert (await client.call_tool(name)).content[0].text == said  # type: ignore[union-attr]
    assert [spec.name for spec in app.tools] == ["work"]
    assert "an odd name! is not run as a task" in caplog.text


async def test_a_handle_is_given_where_the_output_schema_allows_it_and_else_the_call_is_held(
    inline_tasks: Any, tmp_path: Path
) -> None:
    server = FastMCP("lab")

    @server.tool
    async def as_object() -> dict[str, Any]:
        return {"n": 1}

    @server.tool
    async def as_text() -> str:
        return "done"

    options = {"answer": "handle"}
    inline_tasks(attach(server, tmp_path, {"as_*": options}))
    async with FastMCPClient(server) as client:
        handle = await client.call_tool("as_object")
        assert handle.data["data"]["job_id"].startswith("tsk_")
        assert (await client.call_tool("as_text")).data == "done"
