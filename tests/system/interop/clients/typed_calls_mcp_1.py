"""The client of `mcp` 1.x calls tools; it holds results against the listed output schemas."""

import asyncio
import os
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from tests.system.interop.clients.plain_calls import NAME, SERVER, tell


async def main() -> None:
    kind, target, *arguments = SERVER
    if kind == "http":
        transport = streamablehttp_client(target)
    else:
        transport = stdio_client(StdioServerParameters(command=target, args=arguments, env=dict(os.environ)))
    info = types.Implementation(name=NAME, version="1")
    async with transport as (reads, writes, *_), ClientSession(reads, writes, client_info=info) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools

        async def call(
            tool: str, arguments: dict[str, Any], meta: dict[str, Any], timeout_s: float | None
        ) -> tuple[dict[str, Any], Any]:
            limit = None if timeout_s is None else timedelta(seconds=timeout_s)
            result = await session.call_tool(tool, arguments, limit, meta=meta or None)
            return result.model_dump(by_alias=True, mode="json", exclude_none=True), None

        await tell(call, {tool.name: tool.outputSchema for tool in tools})


asyncio.run(main())
