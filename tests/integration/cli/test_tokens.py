"""`token`: who may call over HTTP, and who no more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import stat
from collections.abc import Iterator

import httpx2
import pytest

from backburner.client import BackburnerClient
from tests.integration.cli.conftest import Lab, Worker
from tests.services import wait_until

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@contextlib.contextmanager
def served(lab: Lab, *words: str) -> Iterator[str]:
    """A server on every address, and where it says that clients find it on this machine."""
    server = lab.start("serve", "lab.py", "--http", "0.0.0.0:0", *words)
    assert server.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"MCP is at (http://127\.0\.0\.1:\d+/mcp)", said)):
            line = server.stderr.readline()
            assert line, said
            said += line
        yield found[1]
    finally:
        server.terminate()
        server.communicate(timeout=30)


def ask(url: str, token: str, session: str = "") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"} if session else HELLO
    if session:
        headers |= {"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"}
    return httpx2.post(url, json=body, headers=headers, timeout=20)


@pytest.mark.slow
def test_a_token_lets_in_until_it_is_revoked_and_no_server_is_restarted(lab: Lab) -> None:
    made = lab.run("token", "new", "--owner", "alice", "--name", "laptop")
    first = made.stdout.strip()
    assert first not in made.stderr
    with served(lab) as url:
        begun = ask(url, first)
        assert begun.status_code == 200
        session = begun.headers["mcp-session-id"]
        assert ask(url, first, session).status_code == 200
        second = lab.json("token", "new", "--owner", "alice")["token"]
        assert ask(url, second).status_code == 200
        assert lab.run("token", "revoke", "laptop").returncode == 0
        assert ask(url, first, session).status_code == 401
        assert ask(url, first).status_code == 401
        assert ask(url, second).status_code == 200
        lab.run("token", "revoke", "alice")
        assert ask(url, second).status_code == 401  # with no token left, nobody is let in
        assert ask(url, "none").status_code == 401


@pytest.mark.slow
def test_the_tasks_of_a_tokens_owner_are_found_by_the_owners_name(lab: Lab, worker: Worker) -> None:
    token = lab.json("token", "new", "--owner", "alice", "--name", "laptop")["token"]
    before = lab.json("call", "--detach", "add", "a=1", "--owner", "alice")["task_id"]

    async def call(url: str) -> set[str]:
        async with BackburnerClient(url, token=token) as client:
            assert (await client.call("add", {"a": 1})).structured_content == {"result": 3}
            listed = await client.call("list_tasks", {})
            return {task["task_id"] for task in listed.structured_content["tasks"]}

    with served(lab) as url:
        seen = asyncio.run(call(url))
    listed = {task["task_id"] for task in lab.json("ls", "--owner", "alice")["tasks"]}
    assert before in seen
    assert seen == listed
    assert len(listed) == 2


@pytest.mark.slow
def test_the_file_of_tokens_is_private_and_holds_no_token(lab: Lab) -> None:
    tokens = [
        lab.json("token", "new", "--owner", "alice", "--scope", "tasks", "--expires", "30d")["token"],
        lab.run("token", "new", "--owner", "alice").stdout.strip(),
    ]
    file = lab.folder / "lab.db.d/tokens"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.read_text()
    listed = lab.run("token", "ls").stdout
    assert not any(token in kept + listed for token in tokens)
    shown = lab.json("token", "ls")["tokens"]
    assert [(one["name"], one["owner"]) for one in shown] == [("alice", "alice"), ("alice-2", "alice")]
    assert shown[0]["expires_at"] > shown[0]["created_at"]
    assert shown[0]["scopes"] == ["tasks"]


@pytest.mark.slow
def test_a_token_that_has_expired_is_turned_away(lab: Lab) -> None:
    token = lab.json("token", "new", "--owner", "alice", "--expires", "1ms")["token"]
    with served(lab) as url:
        assert wait_until(lambda: ask(url, token).status_code == 401)
    assert "expired" in lab.run("token", "ls").stdout


@pytest.mark.slow
def test_a_file_that_was_written_by_hand_is_kept_as_it_is_but_for_the_token(lab: Lab) -> None:
    by_hand = f"# ours\nbob  sha256:{'0' * 64}  tasks   # the build\n"
    (lab.folder / "who").write_text(by_hand)
    named = {"BACKBURNER_HTTP__AUTH__TOKENS": "who"}
    assert lab.run("token", "new", "--owner", "alice", **named).returncode == 0
    assert "bob" in lab.run("token", "ls", **named).stdout
    taken = lab.run("token", "new", "--owner", "alice", "--name", "bob", **named)
    assert taken.returncode == 2
    assert "already" in taken.stderr
    assert lab.run("token", "revoke", "alice", **named).returncode == 0
    assert (lab.folder / "who").read_text() == by_hand


@pytest.mark.slow
def test_what_is_no_token_is_told(lab: Lab) -> None:
    assert lab.run("token", "revoke", "nobody").returncode == 3
    assert (
        json.loads(lab.run("token", "revoke", "nobody", "--json").stderr)["error"]["code"] == "unknown_token"
    )
    for words in (
        ["--owner", "two words"],
        ["--owner", "a#b"],
        ["--owner", "alice", "--expires", "soon"],
        [],
    ):
        assert lab.run("token", "new", *words).returncode == 2
    assert not (lab.folder / "lab.db.d/tokens").exists()
    refused = lab.run("serve", "lab.py", "--http", "0.0.0.0:0")
    assert refused.returncode == 2
    assert "backburner token new" in refused.stderr


@pytest.mark.slow
def test_a_token_has_the_role_that_it_was_made_with(lab: Lab) -> None:
    screen = lab.json("token", "new", "--owner", "alice", "--name", "screen", "--role", "read")["token"]
    whole = lab.json("token", "new", "--owner", "alice")["token"]
    assert {one["name"]: one["role"] for one in lab.json("token", "ls")["tokens"]} == {
        "screen": "read",
        "alice": "operate",
    }
    with served(lab) as url:
        me = url.replace("/mcp", "/api/v1/me")
        for token, role, status in ((screen, "read", 403), (whole, "operate", 200)):
            bearer = {"Authorization": f"Bearer {token}"}
            assert httpx2.get(me, headers=bearer, timeout=20).json()["role"] == role
            assert ask(url, token).status_code == status
