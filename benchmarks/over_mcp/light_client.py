"""A client of MCP at 2026-07-28 over HTTP that costs next to nothing: it is servers that are measured."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "light", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
_POLL_S = 0.005


class LightClient:
    """One connection that stays open. Raises ConnectionError, and RuntimeError for what is no result."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._reader, self._writer, self._port = reader, writer, port

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port), port)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def call(self, tool: str) -> dict[str, Any]:
        """The result of a tool, or the task that it was made."""
        return await self._request("tools/call", tool, {"name": tool, "arguments": {}})

    async def run(self, tool: str) -> None:
        """Submit a task, and see it through."""
        await self.until_over((await self.call(tool))["taskId"])

    async def until_over(self, task_id: str) -> None:
        """Look every few milliseconds."""
        while (status := await self._status(task_id)) != "completed":
            if status != "working":
                raise RuntimeError(f"the task is {status}")
            await asyncio.sleep(_POLL_S)

    async def _status(self, task_id: str) -> str:
        seen = await self._request("tasks/get", task_id, {"taskId": task_id})
        return str(seen["status"])

    async def _request(self, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}})
        self._writer.write(
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: {method}\r\nMcp-Name: {name}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        answer = json.loads(await self._body())
        if "result" not in answer:
            raise RuntimeError(answer)
        result: dict[str, Any] = answer["result"]
        return result

    async def _body(self) -> bytes:
        """The answer, whole or in chunks, as JSON or as the one event of a stream."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length:" in head:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            body = await self._reader.readexactly(length)
        else:
            body = b""
            while size := int((await self._reader.readline()).strip(), 16):
                body += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        if b"text/event-stream" in head:
            return next(line[5:] for line in body.splitlines() if line.startswith(b"data:") and b"{" in line)
        return body
