"""What the tests have in common: a server for all tests of a module, and the programs of others."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests import services
from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect
from tests.system.interop import environment


@contextlib.contextmanager
def serving(
    deployment: Deployment, *program: Path, token: str | None = None, supervised: bool = True
) -> Iterator[str]:
    """A server over HTTP with its supervisor up, both for more than one test; gives the address of MCP."""
    with deployment, deployment.http(*program) as server:
        pids = {server.pid}
        if supervised:
            asyncio.run(_wake(server.url, token))
            assert services.wait_until(deployment.supervisor)
            supervisor = deployment.supervisor()
            assert supervisor is not None
            pids.add(supervisor.pid)
        services.running |= pids
        yield server.url
    services.running -= pids


async def _wake(url: str, token: str | None) -> None:
    """The first request that is about tools makes the server start a supervisor."""
    async with connect(url, "2026", token=token) as peer:
        await peer.request("tools/list")


def of_others(command: Callable[[], list[str]]) -> list[str]:
    """The command of a program of others; without it the test is skipped, or fails under CI=true."""
    try:
        return command()
    except environment.Unavailable as error:
        services.unavailable(str(error))
