"""A session of 2025-11-25 over HTTP, by hand: for a client that does not read what it is told."""

from __future__ import annotations

import socket
from typing import Any

import httpx2


class Session:
    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http, self._url = http, url
        self._headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": "2025-11-25",
        }

    async def open(self) -> None:
        info = {"name": "by hand", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        response = await self._post({"id": 0, "method": "initialize", "params": params})
        self._headers["mcp-session-id"] = response.headers["mcp-session-id"]
        await self._post({"method": "notifications/initialized"})

    async def _post(self, message: dict[str, Any]) -> httpx2.Response:
        return await self._http.post(self._url, headers=self._headers, json={"jsonrpc": "2.0", **message})

    def open_a_stream_and_never_read_it(self) -> socket.socket:
        host, port = self._url.split("/")[2].split(":")
        stream = socket.create_connection((host, int(port)))
        names = ("mcp-session-id", "mcp-protocol-version")
        headers = "".join(f"{name}: {self._headers[name]}\r\n" for name in names)
        request = f"GET /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n{headers}\r\n"
        stream.sendall(request.encode())
        assert stream.recv(12) == b"HTTP/1.1 200"  # and not a byte more
        return stream

    async def call(self, request_id: str, name: str, **arguments: Any) -> str:
        """The answer of a tool, as text."""
        params = {"name": name, "arguments": arguments}
        return (await self._post({"id": request_id, "method": "tools/call", "params": params})).text
