"""Starts the servers of servers.py, talks to them with the SDK's client, and checks every message."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import psutil
from mcp.client import Client
from mcp.client.extension import advertise
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from backburner import Backburner
from backburner.engines.local import SupervisorLock
from backburner.mcp.sdk import raw_request
from tests.mcp_server.wire import Wire

TASKS = "io.modelcontextprotocol/tasks"
SCRIPT = Path(__file__).with_name("servers.py")
KINDS = ("own", "lowlevel", "mcpserver", "fastmcp")
FINAL = ("completed", "failed", "cancelled")


@dataclass
class Deployment:
    """One store, and the servers and the supervisor on it."""

    folder: Path
    kind: str = "own"
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "SERVER_KIND": self.kind,
            "BACKBURNER_STORE": f"sqlite:///{self.folder}/tasks.db",
            "BACKBURNER_DATA_DIR": str(self.folder / "data"),
            "BACKBURNER_CANCEL_GRACE_S": "1",
            "BACKBURNER_PATIENCE_S": "60",  # a loaded machine is slower than the 5 s of the SDK's own name
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(SCRIPT.parents[2]), os.environ.get("PYTHONPATH")])
            ),
        }
        chosen = {f"BACKBURNER_{key.upper()}": value for key, value in self.settings.items()}
        return {**os.environ, **own, **chosen}

    def stdio(self) -> StdioServerParameters:
        arguments = [str(SCRIPT), self.kind, "stdio"]
        return StdioServerParameters(command=sys.executable, args=arguments, env=self.environment)

    @contextlib.contextmanager
    def http(self) -> Iterator[str]:
        """A server on a port of its own; gives its address without a path."""
        port = free_port()
        command = [sys.executable, str(SCRIPT), self.kind, "http", str(port)]
        process = subprocess.Popen(command, env=self.environment)
        try:
            wait_for_port(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)

    @contextlib.contextmanager
    def app(self) -> Iterator[Backburner]:
        """The app in this process, for clients in memory."""
        from tests.mcp_server import servers

        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            app = servers.MAKERS[self.kind]()
            yield app
            app.close()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def close(self) -> None:
        """End the supervisor, which would outlive us for a while."""
        process = self._supervisor()
        if process is None:
            return
        family = [process, *process.children(recursive=True)]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(5)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()

    def _supervisor(self) -> psutil.Process | None:
        """The supervisor, once it has signed its lock; None when nobody holds that."""
        lock = SupervisorLock(self.folder / "data")
        deadline = time.monotonic() + 10
        while (holder := lock.holder()) is not None and time.monotonic() < deadline:
            with contextlib.suppress(psutil.Error, KeyError, TypeError):
                process = psutil.Process(holder["pid"])  # type: ignore[arg-type]
                if "backburner.supervise" in " ".join(process.cmdline()):
                    return process
            time.sleep(0.02)
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.02)
    raise AssertionError(f"the server did not come up: exit code {process.poll()}")


async def until(condition: Callable[[], Any], within_s: float = 10) -> Any:
    """Wait until the condition gives something, and give that."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
    return found


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

    async def poll(self, task_id: str, *statuses: str, within_s: float = 20) -> dict[str, Any]:
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
    check: bool = True,
) -> AsyncIterator[Peer]:
    """A client of `target`: an address, stdio parameters, or a server in this process."""
    version = "2026-07-28" if era == "2026" else "2025-11-25"
    wire = Wire(version)
    async with contextlib.AsyncExitStack() as stack:
        transport: Any = target
        if isinstance(target, StdioServerParameters):
            transport = _Tap(stdio_client(target), wire)
        elif isinstance(target, str):
            import httpx2

            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=30))
            transport = _Tap(streamable_http_client(f"{target}/mcp", http_client=http), wire)
        client = Client(
            transport,
            mode=version if era == "2026" else "legacy",
            extensions=[advertise(TASKS)] if tasks else [],
            elicitation_callback=elicit,
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
