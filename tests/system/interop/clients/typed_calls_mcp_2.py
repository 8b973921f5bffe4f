"""The client of `mcp` 2.x calls tools; it holds results against the listed output schemas."""

import asyncio
import os
from typing import Any

import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.system.interop.clients.plain_calls import NAME, SERVER, tell


async def main() -> None:
    kind, target, *arguments = SERVER
    server: Any = target
    if kind == "stdio":
        server = stdio_client(StdioServerParameters(command=target, args=arguments, env=dict(os.environ)))
    info = types.Implementation(name=NAME, version="1")
    async with Client(server, client_info=info) as client:
        tools = (await client.list_tools()).tools

        async def call(
            tool: str, arguments: dict[str, Any], meta: dict[str, Any], timeout_s: float | None
        ) -> tuple[dict[str, Any], Any]:
            given: Any = meta or None
            result = await client.call_tool(tool, arguments, timeout_s, meta=given)
            return result.model_dump(by_alias=True, mode="json", exclude_none=True), None

        await tell(call, {tool.name: tool.output_schema for tool in tools})


asyncio.run(main())
