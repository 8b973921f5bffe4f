"""The client of `fastmcp` 4 calls tools; it makes objects of results, by the listed output schemas."""

import asyncio
import dataclasses
import os
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.system.interop.clients.plain_calls import NAME, SERVER, tell


async def main() -> None:
    kind, target, *arguments = SERVER
    server: Any = target
    if kind == "stdio":
        server = StdioTransport(target, arguments, env=dict(os.environ), keep_alive=False)
    async with Client(server, client_info=types.Implementation(name=NAME, version="1")) as client:
        tools = await client.list_tools()

        async def call(
            tool: str, arguments: dict[str, Any], meta: dict[str, Any], timeout_s: float | None
        ) -> tuple[dict[str, Any], Any]:
            given = await client.call_tool(
                tool, arguments, timeout=timeout_s, meta=meta or None, raise_on_error=False
            )
            content = [
                block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in given.content
            ]
            shown = {"isError": given.is_error, "structuredContent": given.structured_content}
            data: Any = given.data
            return {**shown, "_meta": given.meta, "content": content}, (
                dataclasses.asdict(data) if dataclasses.is_dataclass(data) else data
            )

        await tell(call, {tool.name: tool.output_schema for tool in tools})


asyncio.run(main())
