"""The documents' own surfaces through the SDK's client, in both protocol generations."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from backburner import Backburner
from backburner.mcp.sdk import raw_request
from backburner.target import load, parse
from tests.source_documents.pipe import serving, store_in

APP = """
from backburner import Backburner, TaskContext

bb = Backburner("eras", store="sqlite:///{folder}/tasks.db", data_dir="{folder}/data")

async def colours(typed, arguments, context):
    return ["red", "green"]

@bb.tool(answer="handle", suggest={{"colour": colours}})
def paint(colour: str, secret: str = "", *, ctx: TaskContext) -> str:
    \"\"\"Paint it.\"\"\"
    return f"painted {{colour}}"
"""


def make_app(folder: Path) -> Backburner:
    """An app in a file, where a runner finds it too."""
    path = folder / "eras_app.py"
    path.write_text(APP.format(folder=folder))
    app: Backburner = load(parse(str(path)))
    return app


Story = Callable[[Callable[..., Coroutine[Any, Any, dict[str, Any]]]], Coroutine[Any, Any, None]]


def tell(folder: Path, mode: Any, story: Story) -> None:
    """Run a story with a function that sends any request and gives its raw result."""

    async def run() -> None:
        bb = make_app(folder)
        try:
            async with Client(bb.mcp_server(), mode=mode) as client:

                async def request(method: str, **params: Any) -> dict[str, Any]:
                    return await raw_request(client.session, method, params)

                await story(request)
        finally:
            bb.close()

    with store_in(folder):
        asyncio.run(run())


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_jobs_and_completions(tmp_path: Path, mode: str) -> None:
    async def story(request: Any) -> None:
        (tool,) = [t for t in (await request("tools/list"))["tools"] if t["name"] == "paint"]
        assert tool["async"] is True
        completing = {"name": "paint", "partial_argument": {"name": "colour", "value": ""}}
        found = await request("completion/complete", **completing)
        assert found["completion"] == {"values": ["red", "green"], "total": 2, "hasMore": False}

        handle = await request("tools/call", name="paint", arguments={"colour": "teal", "secret": "s"})
        job_id = handle["data"]["job_id"]
        assert handle["_meta"]["progressToken"]
        await request("tools/call", name="wait_for_task", arguments={"task_id": job_id})
        polled = await request("tools/poll_result", job_id=job_id)
        assert polled["data"]["result"]["data"] == {"result": "painted teal"}
        assert (await request("completion/complete", **completing))["completion"]["values"][0] == "teal"
        if mode != "legacy":
            assert polled["resultType"] == found["resultType"] == "complete"

    tell(tmp_path, mode, story)


def test_a_job_is_there_for_the_next_connection(tmp_path: Path) -> None:
    with store_in(tmp_path):
        with serving(tmp_path) as first:
            first.initialize()
            handle = first.request("tools/call", name="chatty", arguments={"updates": 5000})
            first.kill()
        with serving(tmp_path) as second:
            second.initialize()
            job_id = handle["data"]["job_id"]
            second.request("tools/call", name="wait_for_task", arguments={"task_id": job_id})
            polled = second.request("tools/poll_result", job_id=job_id)
            assert polled["data"]["status"] == "complete"
            assert polled["data"]["result"]["data"] == {"result": "said"}


def test_only_clients_that_say_they_can_take_it_are_notified_after_the_answer(tmp_path: Path) -> None:
    with store_in(tmp_path), serving(tmp_path) as pipe:
        pipe.initialize()
        plain = pipe.request("tools/call", name="chatty", arguments={"updates": 1})["data"]["job_id"]
        pipe.request("tools/call", name="wait_for_task", arguments={"task_id": plain})
        told = pipe.request("tools/call", name="chatty", arguments={"updates": 1}, _meta={"async": True})
        pipe.notified("notifications/tool_result", job_id=told["data"]["job_id"])
        assert plain not in {m["params"].get("job_id") for m in pipe.heard if "method" in m}
