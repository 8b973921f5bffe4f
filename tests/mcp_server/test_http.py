"""The HTTP app itself: mounted in another, and with clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from backburner.mcp.serving.http import UnreadStreams
from tests.deployment import Deployment
from tests.mcp_server.harness import connect, make_app
from tests.services import free_port, until


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="on"))
    serving = asyncio.ensure_future(server.serve())
    try:
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        await serving


@pytest.mark.parametrize("era", ["2025", "2026"])
async def test_the_app_works_mounted_in_another_that_does_not_run_its_lifespan(
    deployment: Deployment, era: str
) -> None:
    with deployment.app(make_app) as app:
        parent = Starlette(routes=[Mount("/lab", app=app.http_app())])
        async with served(parent) as url, connect(f"{url}/lab/mcp", era) as peer:
            done = await peer.poll(await peer.start("big", {"size": 10}))
            assert done["status"] == "completed"
            (made,) = (await peer.tool("list_task_artifacts", task_id=done["taskId"]))["artifacts"]
            assert made["download_url"].startswith(f"{url}/lab/artifacts/")
            async with httpx2.AsyncClient() as http:
                assert (await http.get(made["download_url"])).status_code == 200


async def test_a_stream_that_nobody_reads_is_ended_and_holds_up_nobody() -> None:
    written, ended = 0, asyncio.Event()

    async def flood(scope: Any, receive: Any, send: Any) -> None:
        nonlocal written
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
                written += 10_000
        finally:
            ended.set()

    async with served(_WithoutLifespan(UnreadStreams(flood))) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as reader:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(ended.wait(), 10)
    assert written >= 1_000_000


async def test_health_needs_no_store(deployment: Deployment) -> None:
    with deployment.app(make_app) as app:
        async with served(app.http_app()) as url, httpx2.AsyncClient() as http:
            assert (await http.get(f"{url}/healthz")).text == "ok\n"
        assert "store" not in vars(app)


class _WithoutLifespan:
    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            with contextlib.suppress(OSError):
                await self._app(scope, receive, send)
            return
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
