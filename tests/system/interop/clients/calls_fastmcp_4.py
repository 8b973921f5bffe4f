"""Makes calls with the client of `fastmcp` 4, and prints what came of each: see `calls.py`.

python calls_fastmcp_4.py held|task URL
"""

import asyncio
import logging
import sys
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from tests.system.interop.clients.calls import CLIENT, HEADERS, META, Call, Heard, make_calls

if sys.argv[1] == "task":
    import fastmcp_tasks  # noqa: F401 - to import it is to declare the capability


async def main() -> None:
    logging.disable(logging.WARNING)
    heard = Heard()

    async def call(asked: Call, as_task: bool) -> Any:
        handler = None if as_task else heard.progress
        return await client.call_tool_mcp(asked.tool, asked.arguments, handler, meta=META)

    transport = StreamableHttpTransport(make_calls.url, headers=HEADERS)
    options: Any = {"log_handler": heard.log, "client_info": types.Implementation(**CLIENT)}
    async with Client(transport, **options) as client:
        await client.list_tools()
        await make_calls(call, heard)


asyncio.run(main())
