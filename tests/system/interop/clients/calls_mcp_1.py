"""Makes calls with the client of `mcp` 1.x, and prints what came of each: see `calls.py`.

python calls_mcp_1.py held|task URL
"""

import asyncio
import contextlib
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client

from tests.system.interop.clients.calls import CLIENT, HEADERS, META, Call, Heard, make_calls


async def main() -> None:
    heard = Heard()

    async def call(asked: Call, as_task: bool) -> Any:
        if not as_task:
            return await session.call_tool(asked.tool, asked.arguments, None, heard.progress, meta=META)
        made = await session.experimental.call_tool_as_task(
            asked.tool, asked.arguments, ttl=60_000, meta=META
        )
        return await session.experimental.get_task_result(made.task.taskId, types.CallToolResult)

    options: Any = {"logging_callback": heard.log, "client_info": types.Implementation(**CLIENT)}
    async with (
        streamablehttp_client(make_calls.url, headers=HEADERS) as (reads, writes, _),
        ClientSession(reads, writes, **options) as session,
    ):
        await session.initialize()
        with contextlib.suppress(Exception):  # not every server knows of it
            await session.set_logging_level("info")
        await session.list_tools()
        await make_calls(call, heard)


asyncio.run(main())
