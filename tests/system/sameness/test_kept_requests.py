"""Of a request there is kept what a tool may see of it, and no credential."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.integration.mcp_server.harness import connect

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("servers.py")
SENT = {"X-Team": "the-lab-team", "X-Api-Key": "key-of-ada", "Cookie": "session=tasty"}
SECRETS = (b"opensesame", b"session=tasty")


async def seen(folder: Path, **settings: str) -> tuple[dict[str, Any], bytes]:
    """The headers that a tool saw of a call with SENT, and all that its store holds."""
    kind = {"SERVER_KIND": "mcpserver", "ATTACHED": "1"}
    with Deployment(folder, (SERVER,), settings, kind) as deployment, deployment.http() as server:
        async with connect(server.url, "2025", tasks=False, token="opensesame", headers=SENT) as peer:
            headers = json.loads((await peer.call("headers"))["content"][0]["text"])
            credentials = json.loads((await peer.call("credentials"))["content"][0]["text"])
        return {**headers, **credentials}, held_by_store(folder)


def held_by_store(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("tasks.db*") if path.is_file())


async def test_credentials_are_neither_seen_nor_stored(tmp_path: Path) -> None:
    headers, kept = await seen(tmp_path)
    assert headers["x-team"] == "the-lab-team"
    assert (headers["authorization"], headers["cookie"], headers["x-api-key"]) == (None, None, None)
    assert b"the-lab-team" in kept
    assert not [secret for secret in (*SECRETS, b"key-of-ada") if secret in kept]


async def test_the_operator_names_what_is_kept(tmp_path: Path) -> None:
    named = '["x-api-key", "authorization", "cook*"]'
    headers, kept = await seen(tmp_path, mcp__kept_headers=named)
    assert (headers["x-team"], headers["x-api-key"]) == (None, "key-of-ada")
    assert not [secret for secret in SECRETS if secret in kept]
