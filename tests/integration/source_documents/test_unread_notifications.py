"""A session that never reads its notifications slows nobody, not even itself."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
import pytest
import uvicorn
from mcp.client import Client
from mcp.server.lowlevel import Server

from backburner.mcp.notifications import Outbox, outbox_of
from tests.session_by_hand import Session

UPDATES = 5000
#: So long a stream that nobody reads is waited for: a request that waited for one would take longer.
STUCK_S = 5.0


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """`flood` makes as many updates as the story has, each of its own subject, each two thousand bytes."""
    if params.name == "flood":
        outbox = outbox_of(ctx)
        for number in range(UPDATES):
            body = {"progressToken": "t", "progress": number, "message": "x" * 2000}
            outbox.put(f"subject-{number}", "notifications/progress", body)
            for _ in range(5):
                await asyncio.sleep(0)  # as many go out as the transport takes
    return types.CallToolResult(content=[types.TextContent(type="text", text=params.name)])


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[])


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    server = Server("flooding", on_list_tools=list_tools, on_call_tool=call_tool)
    listener = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error"))
    task = asyncio.create_task(web.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        web.should_exit = web.force_exit = True
        await task


async def timed(session: Session, name: str) -> float:
    """How long a call takes."""
    started = time.monotonic()
    assert f'"text":"{name}"' in await session.call(name, name)
    return time.monotonic() - started


async def flood() -> tuple[list[float], list[float]]:
    async with serving() as url, httpx2.AsyncClient(timeout=20) as http:
        unread, other = Session(http, url), Session(http, url)
        await unread.open()
        await other.open()
        stream = await asyncio.to_thread(unread.open_a_stream_and_never_read_it)
        try:
            await timed(unread, "flood")
            own, others = [], []
            for number in range(20):
                own.append(await timed(unread, f"own-{number}"))
                others.append(await timed(other, f"other-{number}"))
            return own, others
        finally:
            stream.close()


def test_five_thousand_updates_that_nobody_reads_slow_no_request() -> None:
    own, others = asyncio.run(flood())
    assert max(own) < STUCK_S
    assert max(others) < STUCK_S


def test_a_session_that_reads_is_told_to_the_end() -> None:
    async def read() -> None:
        last = asyncio.Event()

        async def hear(message: Any) -> None:
            if isinstance(message, types.ProgressNotification) and message.params.progress == UPDATES - 1:
                last.set()

        async with serving() as url, Client(url, mode="legacy", message_handler=hear) as client:
            await client.call_tool("flood", {})
            await asyncio.wait_for(last.wait(), 30)

    asyncio.run(read())


@pytest.mark.parametrize(("subjects", "most"), [(1, 2), (UPDATES, 257)])
def test_an_outbox_keeps_little_whatever_is_put_into_it(subjects: int, most: int) -> None:
    class Slow:
        """A session whose client takes nothing at first, and then everything."""

        def __init__(self) -> None:
            self.asked, self.reads, self.told_all = asyncio.Event(), asyncio.Event(), asyncio.Event()
            self.told: list[int] = []

        async def send_notification(self, message: Any) -> None:
            self.asked.set()
            await self.reads.wait()
            self.told.append(message.params["progress"])
            if self.told[-1] == UPDATES - 1:
                self.told_all.set()

    async def fill() -> None:
        session = Slow()
        outbox = Outbox(session)
        outbox.put("0", "notifications/progress", {"progress": 0})
        await asyncio.wait_for(session.asked.wait(), 30)
        for number in range(1, UPDATES):
            outbox.put(f"{number % subjects}", "notifications/progress", {"progress": number})
        session.reads.set()
        await asyncio.wait_for(session.told_all.wait(), 30)
        assert len(session.told) <= most

    asyncio.run(fill())
