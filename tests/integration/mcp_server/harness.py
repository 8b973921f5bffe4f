"""Starts the servers of servers.py, talks to them with the SDK's client, and checks every message."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.extension import advertise
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from backburner import Backburner
from backburner.mcp.sdk import raw_request
from tests.deployment import Deployment
from tests.integration.mcp_server.wire import Wire

TASKS = "io.modelcontextprotocol/tasks"
SCRIPT = Path(__file__).with_name("servers.py")
KINDS = ("own", "lowlevel", "mcpserver", "fastmcp")
FINAL = ("completed", "failed", "cancelled")


def deploy(folder: Path, kind: str = "own", **settings: str) -> Deployment:
    """The servers of that kind on a store in the folder."""
    # A loaded machine is slower than the 5 s of the SDK's own name.
    return Deployment(folder, (SCRIPT,), {"mcp__patience_s": "60", **settings}, {"SERVER_KIND": kind})


def make_app() -> Backburner:
    """The app of the kind that the environment names, for clients in memory."""
    from tests.integration.mcp_server import servers

    return servers.make()


# -- the client ------------------------------------------------------------------------------------


class Peer:
    """A client of the SDK with the raw messages in view."""

    def __init__(self, client: Client, wire: Wire) -> None:
        self.client, self.wire = client, wire

    async def request(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """Send any request and give its raw result. Raises MCPError."""
        result = await raw_request(self.client.session, method, params or {}, meta=meta)
        self.wire.check_result(method, result)
        return result

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        meta = params.pop("meta", {})
        return await self.request(
            "tools/call", {"name": name, "arguments": arguments or {}, **params}, **meta
        )

    async def tool(self, name: str, **arguments: Any) -> Any:
        """Call one of the task tools and give its structured result."""
        result = await self.call(name, arguments)
        return result["structuredContent"]

    async def start(self, name: str, arguments: dict[str, Any] | None = None, **params: Any) -> str:
        """Start a tool as a task of the client's own era; gives the task's id."""
        if self.client.protocol_version == "2025-11-25":
            result = (await self.call(name, arguments, task={"ttl": 60_000}, **params))["task"]
        else:
            result = await self.call(name, arguments, **params)
        task_id: str = result["taskId"]
        return task_id

    async def poll(self, task_id: str, *statuses: str, within_s: float = 60) -> dict[str, Any]:
        """Poll until the task has one of the statuses, or is finished."""
        deadline = time.monotonic() + within_s
        while True:
            task = await self.request("tasks/get", {"taskId": task_id})
            if task["status"] in (statuses or FINAL) or task["status"] in FINAL:
                return task
            assert time.monotonic() < deadline, task
            await asyncio.sleep((task.get("pollIntervalMs") or task.get("pollInterval") or 50) / 1000)


async def answer_ada(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


@contextlib.asynccontextmanager
async def connect(
    target: Any,
    era: str,
    *,
    tasks: bool = True,
    elicit: Any = answer_ada,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    check: bool = True,
    extensions: Mapping[str, dict[str, Any]] | None = None,
    name: str | None = None,
    version: str = "1.0",
) -> AsyncIterator[Peer]:
    """A client of `target`: an address of MCP, stdio parameters, or a server in this process."""
    version = "2026-07-28" if era == "2026" else "2025-11-25"
    wire = Wire(version)
    declared = {**({TASKS: {}} if tasks else {}), **(extensions or {})}
    async with contextlib.AsyncExitStack() as stack:
        transport: Any = target
        if isinstance(target, StdioServerParameters):
            transport = _Tap(stdio_client(target), wire)
        elif isinstance(target, str):
            import httpx2

            bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers={**bearer, **(headers or {})}, timeout=30)
            )
            transport = _Tap(streamable_http_client(target, http_client=http), wire)
        client = Client(
            transport,
            mode=version if era == "2026" else "legacy",
            extensions=[advertise(name, given) for name, given in declared.items()],
            elicitation_callback=elicit,
            client_info=None if name is None else types.Implementation(name=name, version=version),
        )
        await stack.enter_async_context(client)
        yield Peer(client, wire)
    if check:
        assert wire.complaints == []


class _Tap:
    """A transport that shows all messages of another to a Wire."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner, self._wire = inner, wire
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> tuple[Any, Any]:
        reads, writes = await self._stack.enter_async_context(self._inner)
        out_send, out_receive = anyio.create_memory_object_stream[Any](0)
        in_send, in_receive = anyio.create_memory_object_stream[Any](0)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)

        async def relay(source: Any, sink: Any, see: Callable[[Any], None]) -> None:
            # What arrives while the client closes has nobody left to read it.
            with contextlib.suppress(anyio.BrokenResourceError):
                async with sink:
                    async for message in source:
                        if isinstance(message, SessionMessage):
                            see(message.message.model_dump(by_alias=True, exclude_unset=True))
                        await sink.send(message)

        group.start_soon(relay, reads, in_send, self._wire.received)
        group.start_soon(relay, out_receive, writes, self._wire.sent)
        return in_receive, out_send

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()
