"""What an attached server has beside MCP when its own framework serves it over HTTP."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.integration.mcp_server.test_auth import token_file
from tests.services import free_port, wait_until

SERVER = """
from {module} import {framework}
from backburner import Backburner
from starlette.responses import PlainTextResponse

mcp = {framework}("lab"{options})
Backburner.attach(mcp, slow=["double"])

@mcp.custom_route("/readyz", methods=["GET"])
async def own(request):
    return PlainTextResponse("the author's own")

@mcp.tool()
def double(n: int) -> int:
    return 2 * n

if __name__ == "__main__":
    import sys
    mcp.run("streamable-http", port=int(sys.argv[1]))
"""
FASTMCP = {"module": "fastmcp", "framework": "FastMCP"}
MCPSERVER = {"module": "mcp.server.mcpserver", "framework": "MCPServer"}
OWN_AUTH = (
    ", auth=__import__('fastmcp.server.auth.providers.jwt', fromlist=['x'])"
    ".StaticTokenVerifier({'secret': {'client_id': 'a'}})"
)


@contextlib.contextmanager
def served(deployment: Deployment, text: str, *, by_its_command: bool) -> Iterator[str]:
    """The address of a server, by `fastmcp run` or by its own `run`."""
    file, port = deployment.folder / "server.py", str(free_port())
    file.write_text(text)
    run = ["-c", "from fastmcp.cli import app; app()", "run", "--no-banner", str(file)]
    words = [*run, "--transport", "http", "--port", port] if by_its_command else [str(file), port]
    with subprocess.Popen([sys.executable, *words], env=deployment.environment) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            assert wait_until(lambda: process.poll() is not None or answers(address), within=90)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def answers(address: str) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return httpx2.get(f"{address}/healthz").status_code in (200, 404, 503)
    return False


def statuses(address: str, *paths: str, token: str = "") -> list[int]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return [httpx2.get(address + path, headers=headers).status_code for path in paths]


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize(("framework", "by_its_command"), [(FASTMCP, True), (MCPSERVER, False)])
async def test_api_dashboard_health_and_metrics_are_on_the_port_of_the_framework(
    deployment: Deployment, framework: dict[str, str], by_its_command: bool
) -> None:
    text = SERVER.format(options="", **framework)
    with served(deployment, text, by_its_command=by_its_command) as address:
        async with connect(f"{address}/mcp", "2026") as peer:
            task_id = await peer.start("double", {"n": 4})
            assert (await peer.poll(task_id))["status"] == "completed"
        assert httpx2.get(f"{address}/api/v1/tasks").json()["tasks"][0]["task_id"] == task_id
        assert statuses(address, "/healthz", "/metrics", "/dashboard", "/") == [200, 200, 307, 303]
        assert httpx2.get(f"{address}/readyz").text == "the author's own"
        assert httpx2.get(f"{address}/api/v1/tasks", headers={"Host": "evil.example"}).status_code == 421


def test_where_the_framework_asks_for_tokens_only_ours_open_the_api(deployment: Deployment) -> None:
    text = SERVER.format(options=OWN_AUTH, **FASTMCP)
    with served(deployment, text, by_its_command=True) as address:
        assert statuses(address, "/healthz", "/api/v1/tasks", "/", token="secret") == [200, 404, 404]
    deployment.settings["http__auth__tokens"] = token_file(deployment.folder, alice="token-of-alice")
    with served(deployment, text, by_its_command=True) as address:
        assert statuses(address, "/api/v1/tasks", "/metrics", token="secret") == [401, 401]
        assert statuses(address, "/api/v1/tasks", "/metrics", token="token-of-alice") == [200, 200]
