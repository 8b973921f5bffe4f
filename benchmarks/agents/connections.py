"""Connections of a host to a server, over stdio or HTTP, with nothing hidden: each message is sent as told.

An SDK would do what its own clients do when a call is given up; the hosts differ in just that.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from .servers.crunching import now

MODERN = "2026-07-28"
_META = "io.modelcontextprotocol/"
#: The longest line that a server may send over stdio.
_LONGEST_LINE = 2**24


class Refused(Exception):
    """The server answered a request with an error, or went away."""


@dataclass
class Request:
    """A request that was sent: its answer, once it is there, and when progress of it was last heard."""

    request_id: int
    answer: asyncio.Future[dict[str, Any]]
    heard_at: float = field(default_factory=now)


class Connection(ABC):
    """One connection. `client` says who the host is: its name, version, protocol and capabilities."""

    def __init__(self, name: str, version: str, protocol: str, capabilities: Mapping[str, Any]) -> None:
        self._info = {"name": name, "version": version}
        self._protocol, self._capabilities = protocol, dict(capabilities)
        self._ids = itertools.count(1)
        self._open: dict[int, Request] = {}

    async def open(self) -> None:
        """The handshake, where the protocol has one."""
        if self._protocol == MODERN:
            return
        hello = {
            "protocolVersion": self._protocol,
            "capabilities": self._capabilities,
            "clientInfo": self._info,
        }
        await self.request("initialize", hello)
        await self.notify("notifications/initialized", {})

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request that the host waits for as long as it takes. Raises Refused."""
        return await (await self.begin(method, params)).answer

    async def begin(self, method: str, params: Mapping[str, Any]) -> Request:
        """Send a request. Its progress, if it is wanted, is known by the request's own number."""
        request = Request(next(self._ids), asyncio.get_running_loop().create_future())
        request.answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._open[request.request_id] = request
        sent = dict(params)
        meta = dict(sent.get("_meta") or {})
        if "progressToken" in meta:
            meta["progressToken"] = request.request_id
        if self._protocol == MODERN:
            meta |= {
                f"{_META}protocolVersion": MODERN,
                f"{_META}clientInfo": self._info,
                f"{_META}clientCapabilities": self._capabilities,
            }
        if meta:
            sent["_meta"] = meta
        message = {"jsonrpc": "2.0", "id": request.request_id, "method": method, "params": sent}
        await self._send(message, request)
        return request

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": dict(params)}, None)

    def forget(self, request: Request) -> None:
        """Whatever comes of it now is not read any more."""
        self._open.pop(request.request_id, None)

    def hang_up(self, request: Request) -> None:
        """As `forget`; where the request has a connection of its own, that is closed."""
        self.forget(request)

    def _heard(self, message: Mapping[str, Any]) -> None:
        if message.get("method") == "notifications/progress":
            heard_of = self._open.get(message["params"]["progressToken"])
            if heard_of is not None:
                heard_of.heard_at = now()
        elif "method" not in message and (request := self._open.pop(message["id"], None)) is not None:
            if request.answer.done():
                return
            if "error" in message:
                request.answer.set_exception(Refused(str(message["error"].get("message"))))
            else:
                request.answer.set_result(message["result"])

    @abstractmethod
    async def _send(self, message: dict[str, Any], request: Request | None) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...


class Stdio(Connection):
    """A server of the host's own, which ends with it."""

    async def start(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Start the server. What it says beside the protocol is not read."""
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
            limit=_LONGEST_LINE,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._heard(json.loads(line))
        for request in list(self._open.values()):
            if not request.answer.done():
                request.answer.set_exception(Refused("Connection closed"))

    async def _send(self, message: dict[str, Any], request: Request | None) -> None:
        assert self._process.stdin is not None
        if self._reading.done():
            raise Refused("Connection closed")
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def close(self) -> None:
        self._process.kill()
        await self._process.wait()
        await self._reading


class Http(Connection):
    """Each request is a POST of its own; before 2026-07-28 within a session."""

    def connect(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/mcp"
        # A connection that is kept would be closed by the server at any moment: its clock runs quick.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx2.AsyncClient(timeout=None, limits=limits)
        self._session: dict[str, str] = {}
        self._posts: dict[int, asyncio.Task[None]] = {}

    async def _send(self, message: dict[str, Any], request: Request | None) -> None:
        headers = {"Accept": "application/json, text/event-stream", **self._session}
        if message["method"] != "initialize":
            headers["MCP-Protocol-Version"] = self._protocol
        if self._protocol == MODERN:
            params = message["params"]
            headers["Mcp-Method"] = message["method"]
            headers["Mcp-Name"] = params.get("name") or params.get("taskId") or ""
        post = asyncio.create_task(self._post(message, headers, request))
        if request is None:
            await post
        else:
            self._posts[request.request_id] = post
            post.add_done_callback(lambda _: self._posts.pop(request.request_id, None))

    async def _post(self, message: dict[str, Any], headers: dict[str, str], request: Request | None) -> None:
        try:
            async with self._client.stream("POST", self._url, json=message, headers=headers) as response:
                if (session := response.headers.get("mcp-session-id")) is not None:
                    self._session = {"Mcp-Session-Id": session}
                if "text/event-stream" in response.headers.get("content-type", ""):
                    async for line in response.aiter_lines():
                        if line.startswith("data:") and "{" in line:
                            self._heard(json.loads(line[5:]))
                elif body := await response.aread():
                    self._heard(json.loads(body))
        except (httpx2.HTTPError, ValueError) as error:
            if request is not None and not request.answer.done():
                request.answer.set_exception(Refused(str(error) or type(error).__name__))

    def hang_up(self, request: Request) -> None:
        self.forget(request)
        if (post := self._posts.pop(request.request_id, None)) is not None:
            post.cancel()

    async def close(self) -> None:
        for post in list(self._posts.values()):
            post.cancel()
        with contextlib.suppress(httpx2.HTTPError):
            await self._client.aclose()
