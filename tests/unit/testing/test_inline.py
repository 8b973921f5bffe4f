"""Tasks that run inline, as users' own tests have them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import psutil
import pytest
from mcp.client import Client

from backburner import Backburner, Retry, TaskContext
from backburner.core.lifecycle import State
from backburner.errors import InvalidInputs, InvalidRequest
from backburner.testing import inline

UseInline = Callable[..., Any]
CONFIRM = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}

bb = Backburner("inline", store="sqlite:///must_not_be_made.db")


@bb.tool
def simulate(steps: int, *, ctx: TaskContext) -> dict[str, Any]:
    for step in range(1, steps + 1):
        ctx.progress(step, steps, phase="relaxation")
        ctx.checkpoint({"step": step})
    ctx.log(f"{steps} steps")
    (ctx.scratch / "data.txt").write_text("x" * steps)
    ctx.artifact("data.txt")
    return {"steps": steps, "thread": threading.current_thread().name}


@bb.tool(memory_mb=1)
async def double(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


@bb.tool
def delete(name: str, *, ctx: TaskContext) -> str:
    answer = ctx.ask(f"Delete {name}?", CONFIRM)
    return "deleted" if answer.accepted and (answer.content or {})["sure"] else f"kept: {answer.action}"


@bb.tool(retries=Retry(max_attempts=3, backoff_s=3600, on=ConnectionError))
def fetch(*, ctx: TaskContext) -> int:
    if ctx.attempt < 3:
        ctx.checkpoint(ctx.attempt)
        raise ConnectionResetError(f"attempt {ctx.attempt}")
    return int(ctx.checkpoint_data)


@bb.tool
def endless(*, ctx: TaskContext) -> None:
    ctx.progress(1, 2)
    while not ctx.wait_cancelled(10):
        pass
    ctx.raise_if_cancelled()


@bb.tool
async def endless_async() -> None:
    await asyncio.Event().wait()


def test_a_tool_runs_to_its_end_within_the_call_and_all_that_it_did_can_be_seen() -> None:
    processes = set(psutil.Process().children())
    with inline(bb) as tasks:
        done = tasks.run("simulate", steps=3)
        assert done.state is State.SUCCEEDED
        assert done.result["steps"] == 3
        assert [each.step for each in done.progress] == [1, 2, 3]
        assert done.progress[-1].percent == 100
        assert done.checkpoints == [{"step": 1}, {"step": 2}, {"step": 3}]
        assert done.log == ["3 steps"]
        assert done.artifacts == {"data.txt": b"xxx"}
        assert tasks.run("double", x=21).result == 42
        assert [task.task.tool_name for task in tasks.all()] == ["simulate", "double"]
        assert set(psutil.Process().children()) <= processes
    assert not Path(__file__).with_name("must_not_be_made.db").exists()


def test_each_block_begins_with_nothing() -> None:
    for _ in range(2):
        with inline(bb) as tasks:
            assert tasks.all() == []
            tasks.run("double", x=1)


def test_inputs_are_checked_and_an_exception_is_the_task_s_error() -> None:
    with inline(bb) as tasks:
        with pytest.raises(InvalidInputs):
            tasks.run("double", x="many")
        done = tasks.run("fetch")
        assert (done.state, done.result, done.task.attempt) == (State.SUCCEEDED, 2, 3)


def test_questions_are_answered_by_the_test() -> None:
    with inline(bb, answers=[{"sure": True}, None]) as tasks:
        assert tasks.run("delete", name="a").result == "deleted"
        assert tasks.run("delete", name="b").result == "kept: decline"
        lacking = tasks.run("delete", name="c")
        assert lacking.error is not None
        assert "no answer left" in lacking.error.message
    with inline(bb, answers=lambda message, schema: {"sure": "ab" in message}) as tasks:
        assert [tasks.run("delete", name=name).result for name in ("ab", "c")] == ["deleted", "kept: accept"]
    with inline(bb) as tasks:
        asking = tasks.run("delete", name="d")
        assert (asking.state, list(asking.questions.values())) == (State.INPUT_REQUIRED, ["Delete d?"])
        assert asking.answer({"sure": True}).result == "deleted"
        tasks.run("delete", name="left waiting")


@pytest.mark.parametrize("tool", ["endless", "endless_async"])
def test_a_tool_that_runs_can_be_cancelled(tool: str) -> None:
    with inline(bb) as tasks:
        assert tasks.start(tool).cancel().state is State.CANCELLED


def make_server() -> Any:
    from mcp.server.mcpserver import Context, MCPServer
    from pydantic import BaseModel

    class Sure(BaseModel):
        sure: bool

    mcp = MCPServer("shop")

    async def index(shelf: int, ctx: Any) -> str:
        await ctx.report_progress(1, 2, "half")
        answer = await ctx.elicit("Sure?", Sure)
        return f"{shelf} {answer.action}"

    index.__annotations__["ctx"] = Context
    mcp.tool()(index)
    Backburner.attach(mcp, slow=["index"])
    return mcp


async def test_a_client_in_memory_calls_the_slow_tools_of_a_server_that_a_function_made(
    inline_tasks: UseInline,
) -> None:
    async def accept(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"sure": True})

    server = make_server()
    tasks = inline_tasks(server)
    async with Client(server, elicitation_callback=accept) as client:
        result = await client.call_tool("index", {"shelf": 3})
    assert isinstance(result.content[0], types.TextContent)
    assert result.content[0].text == "3 accept"
    (task,) = tasks.all()
    assert task.state is State.SUCCEEDED
    assert task.progress[0].message == "half"


async def test_a_client_of_fastmcp_calls_the_slow_tools_of_its_server(inline_tasks: UseInline) -> None:
    from fastmcp import Client as FastClient
    from fastmcp import FastMCP

    server = FastMCP("shop")
    server.tool(repeat)
    Backburner.attach(server, slow=["repeat"])
    tasks = inline_tasks(server)
    async with FastClient(server) as client:
        result = await client.call_tool("repeat", {"text": "a"}, raise_on_error=False)
    assert isinstance(result.content[0], types.TextContent)
    assert result.content[0].text == "aa"
    assert [task.state for task in tasks.all()] == [State.SUCCEEDED]


def repeat(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text * 2)


def test_the_tools_of_a_server_run_without_a_client(inline_tasks: UseInline) -> None:
    tasks = inline_tasks(make_server(), answers=[{"sure": True}])
    assert tasks.run("index", shelf=4).result["content"][0]["text"] == "4 accept"


def test_what_is_no_app_is_refused(inline_tasks: UseInline) -> None:
    with pytest.raises(InvalidRequest, match="neither a Backburner app nor a server"):
        inline_tasks(object())


async def served(server: Any) -> str:
    async with Client(server) as client:
        result = await client.call_tool("double", {"x": 2})
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@pytest.mark.parametrize("time", ["first", "second"])
def test_one_app_serves_the_clients_of_many_tests(inline_tasks: UseInline, time: str) -> None:
    inline_tasks(bb)
    assert asyncio.run(served(bb.mcp_server())) == "4"
