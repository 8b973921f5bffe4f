"""A server that does not let a client in: the client says so, and not that the server is away."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backburner.client import BackburnerClient, NotAuthorized, TaskHandle
from backburner.mcp.transport.auth import hash_token
from tests import warm
from tests.deployment import Deployment
from tests.integration.client.gates import APP, Gates
from tests.system.interop.serving import serving


@pytest.fixture
def tokens(deployment: Deployment) -> Path:
    path = deployment.folder / "tokens"
    path.write_text(f"alice  {hash_token('token-of-alice')}\n")
    deployment.settings["http__auth__tokens"] = str(path)
    return path


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that lets nobody in who comes in these tests."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "tokens").write_text("")
    with serving(
        Deployment(folder, (APP,), {"http__auth__tokens": str(folder / "tokens")}), supervised=False
    ) as url:
        yield url


@pytest.mark.parametrize(("token", "said"), [(None, "no token was given"), ("wrong", "the token is wrong")])
async def test_a_missing_and_a_wrong_token_are_called_so(url: str, token: str | None, said: str) -> None:
    with pytest.raises(NotAuthorized, match=said) as refused:
        async with BackburnerClient(url, token=token):
            pass
    assert refused.value.code == "not_authorized"
    assert "401" in str(refused.value)
    assert "cannot be reached" not in str(refused.value)


async def test_a_token_that_is_taken_away_is_noticed_at_the_next_request(
    deployment: Deployment, tokens: Path, gates: Gates
) -> None:
    async def ask_again_and_again(handle: TaskHandle) -> None:
        while True:  # until the server has read the file again
            await handle.status()

    with deployment.http() as server:
        async with BackburnerClient(server.url, token="token-of-alice") as client:
            handle = await client.start("gates", folder=str(gates.folder), n=1)
            assert (await handle.status()).status == "working"
            await asyncio.to_thread(tokens.write_text, "")
            with pytest.raises(NotAuthorized):
                await asyncio.wait_for(ask_again_and_again(handle), 30)
        gates.open(1)
        gates.end()


def test_the_bridge_says_it_too(url: str) -> None:
    command = [warm.BACKBURNER, "bridge", url]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "no token was given" in done.stderr
    assert "--token" in done.stderr
    assert "Traceback" not in done.stderr
