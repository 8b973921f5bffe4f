"""The HTTP app itself: mounted in another, with clients that do not read, and answering without a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from backburner.mcp.transport.http import StalledStreams
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import TASKS, connect, make_app
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
            async with httpx2.AsyncClient(timeout=60) as http:
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

    async with served(_WithoutLifespan(StalledStreams(flood))) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as reader:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(ended.wait(), 10)
    assert written >= 1_000_000


async def test_health_needs_no_store(deployment: Deployment) -> None:
    with deployment.app(make_app) as app:
        async with served(app.http_app()) as url, httpx2.AsyncClient(timeout=60) as http:
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


# -- answers without a stream ------------------------------------------------------------------------

UNKNOWN = "tsk_" + "0" * 36
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
}
GET = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": UNKNOWN, "_meta": META}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "_meta": META}}
TAKES_STREAMS = "application/json, text/event-stream"


def headers_of(request: dict[str, Any], **changed: str) -> dict[str, str]:
    params = request["params"]
    return {
        "Accept": TAKES_STREAMS,
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": request["method"],
        "Mcp-Name": params.get("taskId") or params.get("name"),
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }


def without(request: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name != key}


STRANGE: dict[str, tuple[Any, dict[str, str]]] = {
    "no JSON": ("{", headers_of(GET)),
    "a batch": ([GET], headers_of(GET)),
    "a notification": (without(GET, "id"), headers_of(GET)),
    "an id that is none": ({**GET, "id": True}, headers_of(GET)),
    "no parameters": (without(GET, "params"), headers_of(GET)),
    "no capabilities": ({**GET, "params": {"taskId": UNKNOWN, "_meta": {}}}, headers_of(GET)),
    "another method": ({**GET, "method": "tasks/cancel"}, headers_of(GET)),
    "another version": (GET, headers_of(GET, MCP_Protocol_Version="2099-01-01")),
    "an unknown task": (GET, headers_of(GET)),
    "another tool": (CALL, headers_of(CALL, Mcp_Name="hold")),
    "arguments that are none": ({**CALL, "params": {**CALL["params"], "arguments": "no"}}, headers_of(CALL)),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("what", STRANGE)
async def test_what_is_strange_is_answered_as_with_a_stream(deployment: Deployment, what: str) -> None:
    request, headers = STRANGE[what]
    content = request if isinstance(request, str) else json.dumps(request)
    with deployment.app(make_app) as app:
        async with served(app.http_app()) as url, httpx2.AsyncClient(timeout=60) as http:
            # One who takes anything is answered by the SDK alone, which checks all that there is to check.
            by_sdk, ours = [
                await http.post(f"{url}/mcp", content=content, headers={**headers, "Accept": accept})
                for accept in ("*/*", TAKES_STREAMS)
            ]
    assert (ours.status_code, ours.text) == (by_sdk.status_code, by_sdk.text)


async def test_a_header_that_comes_twice_is_refused(deployment: Deployment) -> None:
    with deployment.app(make_app) as app:
        async with served(app.http_app()) as url, httpx2.AsyncClient(timeout=60) as http:
            twice = [*headers_of(GET).items(), ("Mcp-Name", "another")]
            refused = await http.post(f"{url}/mcp", json=GET, headers=twice)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020)


async def test_a_middleware_of_the_server_s_can_tell_something_while_a_task_is_made(
    deployment: Deployment,
) -> None:
    async def tell(ctx: Any, call_next: Any) -> Any:
        await ctx.session.send_progress_notification("mine", 1, related_request_id=ctx.request_id)
        return await call_next(ctx)

    with deployment.app(make_app) as app:
        app.mcp_server().middleware.insert(0, tell)
        async with served(app.http_app()) as url, httpx2.AsyncClient(timeout=60) as http:
            for _ in range(2):  # while the tool is not known yet, and afterwards
                answer = await http.post(f"{url}/mcp", json=CALL, headers=headers_of(CALL))
                assert answer.headers["content-type"] == "text/event-stream"
                told = [line[5:] for line in answer.text.splitlines() if line.startswith("data:")]
                news, created = map(json.loads, told)
                assert (news["method"], news["params"]["progressToken"]) == ("notifications/progress", "mine")
                assert created["result"]["resultType"] == "task"
                await app.service.aio.wait(created["result"]["taskId"], 60)
