"""What the tests have in common: a server for all tests of a module, and the programs of others."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from backburner.engines.local import SupervisorLock
from tests import services
from tests.interop import environment
from tests.mcp_server.harness import Deployment, connect, free_port, wait_for_port


@contextlib.contextmanager
def serving(deployment: Deployment, script: Path, *arguments: str) -> Iterator[str]:
    """A server over HTTP with its supervisor up, both for more than one test; gives the address of MCP.

    The script gets the port as its last argument.
    """
    port = free_port()
    command = [sys.executable, str(script), *arguments, str(port)]
    log = deployment.folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=deployment.environment, stdout=output, stderr=output)
    supervisor = 0
    services.running.add(server.pid)
    try:
        wait_for_port(port, server)
        url = f"http://127.0.0.1:{port}"
        asyncio.run(_wake(url))
        supervisor = _supervisor(deployment)
        services.running.add(supervisor)
        yield f"{url}/mcp"
    finally:
        server.terminate()
        server.wait(10)
        deployment.close()
        services.running.difference_update({server.pid, supervisor})


async def _wake(url: str) -> None:
    """The first request that is about tools makes the server start a supervisor."""
    async with connect(url, "2026") as peer:
        await peer.request("tools/list")


def _supervisor(deployment: Deployment) -> int:
    lock = SupervisorLock(deployment.folder / "data")
    assert services.wait_until(lambda: (lock.holder() or {}).get("pid"))
    pid = (lock.holder() or {})["pid"]
    assert isinstance(pid, int)
    return pid


def of_others(command: Callable[[], list[str]]) -> list[str]:
    """The command of a program of others; without it the test is skipped, or fails under CI=true."""
    try:
        return command()
    except environment.Unavailable as error:
        services.unavailable(str(error))
