"""Who may see what: owners from tokens, the verifiers, and the checks in front of the HTTP server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.shared.exceptions import MCPError

from backburner.errors import ConfigError
from backburner.mcp.transport.auth import JwtTokens, StaticTokens, hash_token
from backburner.mcp.transport.run import check_bind, split_address
from tests import services
from tests.deployment import Deployment, HttpServer
from tests.integration.mcp_server.harness import SCRIPT, Peer, connect, deploy, make_app
from tests.services import wait_until

UNKNOWN = "tsk_" + "0" * 36
SECRET = "a shared secret of more than 32 bytes"


def token_file(folder: Path, **tokens: str) -> str:
    lines = ["# who may come in", "", *(f"{name}  {hash_token(token)}" for name, token in tokens.items())]
    path = folder / "tokens"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.whole(but_first=1)
@pytest.mark.parametrize("deployment", ["own", "mcpserver", "fastmcp"], indirect=True)
async def test_another_owner_s_task_looks_like_no_task(deployment: Deployment) -> None:
    names = ("alice-2025", "bob-2025", "alice-2026", "bob-2026")
    tokens = token_file(deployment.folder, **{name: f"token-of-{name}" for name in names})
    deployment.settings |= {"http__auth__tokens": tokens}
    with deployment.http() as server:
        for era in ("2025", "2026"):
            async with (
                connect(server.url, era, token=f"token-of-alice-{era}") as alice,
                connect(server.url, era, token=f"token-of-bob-{era}") as bob,
            ):
                await looks_like_no_task(alice, bob)


async def looks_like_no_task(alice: Peer, bob: Peer) -> None:
    task_id = await alice.start("slow", {"n": 1})
    assert (await alice.poll(task_id))["status"] == "completed"
    said = set()
    for asked in (task_id, UNKNOWN):
        for method in ("tasks/get", "tasks/cancel"):
            with pytest.raises(MCPError) as refused:
                await bob.request(method, {"taskId": asked})
            said.add((refused.value.code, refused.value.message, str(refused.value.data)))
        answer = await bob.call("get_task_status", {"task_id": asked})
        assert answer["structuredContent"]["error"]["code"] == "task_not_found"
    assert len(said) == 1
    assert (await bob.tool("list_tasks"))["tasks"] == []
    assert [task["task_id"] for task in (await alice.tool("list_tasks"))["tasks"]] == [task_id]


@pytest.fixture(scope="module")
def tokened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, HttpServer]]:
    """A server for whoever has a token, and the file in which they are: Alice's alone."""
    folder = tmp_path_factory.mktemp("tokened")
    tokens = token_file(folder, alice="token-of-alice")
    with deploy(folder, http__auth__tokens=tokens) as made, made.http() as server:
        services.running.add(server.pid)
        yield Path(tokens), server


async def test_without_a_token_nobody_comes_in(tokened: tuple[Path, HttpServer]) -> None:
    _, server = tokened
    async with httpx2.AsyncClient(timeout=60) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "token-of-alice"}):
            refused = await http.post(server.url, json={}, headers=headers)
            assert refused.status_code == 401
            assert "www-authenticate" in refused.headers
        assert (await http.get(f"{server.address}/healthz")).status_code == 200


def test_tokens_come_and_go_with_their_file(tokened: tuple[Path, HttpServer]) -> None:
    tokens, server = tokened
    folder = tokens.parent
    with httpx2.Client(timeout=60) as http:

        def may_come_in(token: str) -> bool:
            answer = http.post(server.url, json={}, headers={"Authorization": f"Bearer {token}"})
            return answer.status_code != 401

        assert may_come_in("token-of-alice")
        token_file(folder, alice="token-of-alice", bob="token-of-bob")
        assert wait_until(lambda: may_come_in("token-of-bob"), within=10)

        (folder / "new").write_text(f"bob {hash_token('token-of-bob')}\n")
        (folder / "new").rename(tokens)
        assert wait_until(lambda: not may_come_in("token-of-alice"), within=10)

        tokens.write_text("bob sha256:too-short\n")
        assert not wait_until(lambda: not may_come_in("token-of-bob"), within=1.5)
        token_file(folder, alice="token-of-alice")
        assert wait_until(lambda: not may_come_in("token-of-bob"), within=10)
        assert may_come_in("token-of-alice")


async def test_requests_for_another_host_and_from_foreign_pages_are_turned_away(server: str) -> None:
    address = server.removesuffix("/mcp")
    async with httpx2.AsyncClient(timeout=60) as http:
        for path in ("/mcp", "/healthz", "/artifacts/a/b"):
            asked = address + path
            assert (await http.get(asked, headers={"Host": "evil.example"})).status_code == 421
            for origin in ("http://evil.example", "http://[", "http://[::1", "null", "", "x" * 5000):
                foreign = await http.get(asked, headers={"Origin": origin})
                assert foreign.status_code == 403, origin
        own = await http.get(f"{address}/healthz", headers={"Origin": address})
        assert own.status_code == 200


def test_an_address_beyond_this_host_needs_tokens_or_an_explicit_word(
    tmp_path: Path, deployment: Deployment
) -> None:
    with deployment.app(make_app) as app:
        check_bind(app, "127.0.0.1")
        check_bind(app, "::1")
        with pytest.raises(ConfigError, match="no tokens are configured"):
            check_bind(app, "0.0.0.0")
    for settings in (
        {"http__allow_anonymous": "true"},
        {"http__auth__tokens": token_file(tmp_path, alice="token")},
    ):
        with deploy(tmp_path, **settings).app(make_app) as app:
            check_bind(app, "0.0.0.0")


def test_the_command_line_refuses_such_an_address(deployment: Deployment) -> None:
    script = "from backburner.cli import main; main()"
    command = [sys.executable, "-c", script, "serve", str(SCRIPT), "--http", "0.0.0.0:0"]
    done = subprocess.run(
        command, env=deployment.environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 2
    assert "--allow-anonymous" in done.stderr


def test_addresses() -> None:
    assert split_address("8765") == ("127.0.0.1", 8765)
    assert split_address("0.0.0.0:80") == ("0.0.0.0", 80)
    assert split_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:port", "1:99999"):
        with pytest.raises(ConfigError):
            split_address(wrong)


# -- verifiers -------------------------------------------------------------------------------------


async def test_static_tokens_are_known_by_their_hash(tmp_path: Path) -> None:
    tokens = StaticTokens(token_file(tmp_path, alice="one", bob="two"))
    found = await tokens.verify_token("two")
    assert found is not None
    assert found.client_id == "bob"
    assert await tokens.verify_token("three") is None
    assert "one" not in (tmp_path / "tokens").read_text().split()
    (tmp_path / "wrong").write_text("alice plain-token\n")
    with pytest.raises(ConfigError, match="line 1"):
        StaticTokens(tmp_path / "wrong")
    with pytest.raises(ConfigError):
        StaticTokens(tmp_path / "absent")


def claims(**changes: Any) -> dict[str, Any]:
    return {
        "sub": "alice",
        "iss": "https://issuer.example",
        "aud": "tasks",
        "client_id": "app",
        "scope": "read write",
        "exp": int(time.time()) + 60,
        **changes,
    }


async def test_json_web_tokens_by_a_shared_secret() -> None:
    tokens = JwtTokens(key=SECRET, issuer="https://issuer.example", audience="tasks")
    found = await tokens.verify_token(jwt.encode(claims(), SECRET, "HS256"))
    assert found is not None
    assert (found.client_id, found.subject, found.scopes) == ("app", "alice", ["read", "write"])
    for wrong in (
        jwt.encode(claims(exp=1), SECRET, "HS256"),
        jwt.encode(claims(aud="other"), SECRET, "HS256"),
        jwt.encode(claims(iss="other"), SECRET, "HS256"),
        jwt.encode(claims(), SECRET + "x", "HS256"),
        jwt.encode(claims(), "", "none"),
        "nonsense",
        "",
    ):
        assert await tokens.verify_token(wrong) is None
    with pytest.raises(ConfigError):
        JwtTokens(key="short")


async def test_json_web_tokens_by_a_key_set_in_a_file(tmp_path: Path) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private.public_key()))
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "ES256"}]}))
    tokens = JwtTokens(jwks=str(path), audience="tasks")
    assert await tokens.verify_token(jwt.encode(claims(), pem, "ES256", headers={"kid": "k1"})) is not None
    assert await tokens.verify_token(jwt.encode(claims(), pem, "ES256", headers={"kid": "k2"})) is None
    # A public key is no shared secret: a token signed with it as one must not pass.
    assert await tokens.verify_token(jwt.encode(claims(), SECRET, "HS256", headers={"kid": "k1"})) is None
    with pytest.raises(ConfigError):
        JwtTokens(jwks=os.fspath(tmp_path / "absent"))
