"""A server that others can reach, started as the docs tell: which Host names it answers to, and its links."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import services, warm
from tests.deployment import ROOT, Deployment
from tests.integration.mcp_server.harness import SCRIPT, connect, deploy
from tests.integration.mcp_server.test_auth import token_file
from tests.services import free_port, wait_until

OPERATIONS = ROOT / "docs" / "guides" / "deploy-postgresql.md"
TOKEN = "token-of-alice"


def serve_command(port: int, address: str | None = None) -> list[str]:
    """The command of the page, with an app, and a port, of our own."""
    (line,) = re.findall(r"^backburner (serve lab\.py --http \S+)", OPERATIONS.read_text(), re.MULTILINE)
    verb, _, option, documented = shlex.split(line)
    address = address or documented.rpartition(":")[0]
    return [warm.PYTHON, "-m", "backburner.cli", verb, str(SCRIPT), option, f"{address}:{port}"]


class Served:
    """A server and what it has said so far."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self._log = log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def said(self) -> str:
        return self._log.read_text()

    def status(self, host: str, *, at: str = "127.0.0.1") -> int:
        """What a request with that Host header gets at that address of the machine."""
        answer = httpx2.get(f"http://{at}:{self.port}/healthz", headers={"Host": host})
        return answer.status_code


@contextlib.contextmanager
def served(folder: Path, address: str | None = None, **settings: str) -> Iterator[Served]:
    made = deploy(folder, http__auth__tokens=token_file(folder, alice=TOKEN), **settings)
    port, log = free_port(), folder / "server.log"
    with made as deployment, log.open("w") as output:
        command = serve_command(port, address)
        server = subprocess.Popen(command, env=deployment.environment, stdout=output, stderr=output)
        try:
            assert wait_until(lambda: server.poll() is not None or "Uvicorn running" in log.read_text())
            assert server.poll() is None, log.read_text()
            services.running.add(server.pid)
            yield Served(port, log)
        finally:
            server.terminate()
            server.wait(10)


@contextlib.contextmanager
def lasting(folder: Path, **settings: str) -> Iterator[Served]:
    """One for several tests, with its supervisor up."""
    with served(folder, supervisor__idle_exit_s="0", **settings) as server:
        asyncio.run(made_by(server, f"127.0.0.1:{server.port}"))
        supervisor = deploy(folder).supervisor()
        assert supervisor is not None
        services.running.add(supervisor.pid)
        yield server


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that is told nothing of its names."""
    with served(tmp_path_factory.mktemp("documented")) as server:
        yield server


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One with names of its own."""
    names = '["Lab.Example", "other.example:80", "2001:DB8::1"]'
    with lasting(tmp_path_factory.mktemp("named"), http__allowed_hosts=names) as server:
        yield server


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One with a public address."""
    address = "https://[2001:db8::7]:8443/tasks/"
    with lasting(tmp_path_factory.mktemp("public"), http__public_url=address) as server:
        yield server


def test_it_says_which_names_it_answers_to_and_how_to_add_one(documented: Served) -> None:
    name, port = socket.gethostname().lower(), documented.port
    assert "localhost" in documented.said
    assert name in documented.said
    assert "http.allowed_hosts" in documented.said
    assert "BACKBURNER_HTTP__ALLOWED_HOSTS" in documented.said
    for known in ("localhost", "LocalHost.", "127.0.0.1", "[::1]", "[0:0:0:0:0:0:0:1]", name.upper()):
        assert documented.status(known) == 200, known
        assert documented.status(f"{known}:{port}") == 200, known
    for foreign in ("lab.example", f"lab.example:{port}", "0.0.0.0", "localhost.evil.example", "[::1"):
        assert documented.status(foreign) == 421, foreign
    refused = httpx2.get(f"http://127.0.0.1:{port}/healthz", headers={"Host": "lab.example"}).text
    assert "http.allowed_hosts" in refused
    assert "lab.example" not in refused


def test_it_answers_to_the_address_that_it_is_reached_at(documented: Served) -> None:
    assert documented.status(f"127.0.0.2:{documented.port}", at="127.0.0.2") == 200
    assert documented.status(f"127.0.0.2:{documented.port}", at="127.0.0.1") == 421


def test_a_name_is_added_as_it_says(named: Served) -> None:
    assert "allowed_hosts" not in named.said
    for known in ("lab.example", "LAB.EXAMPLE:1234", "other.example:80", "[2001:db8:0::1]:80"):
        assert named.status(known) == 200, known
    for foreign in ("other.example", "other.example:81", "[2001:db8::2]"):
        assert named.status(foreign) == 421, foreign


def test_the_name_of_the_public_address_is_answered(public: Served) -> None:
    assert "allowed_hosts" not in public.said
    assert public.status("[2001:DB8::7]:8443") == 200


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_it_listens_on_every_ipv6_address_too(tmp_path: Path) -> None:
    with served(tmp_path, "[::]") as server:
        assert server.status(f"[::1]:{server.port}", at="[::1]") == 200
        assert server.status("lab.example", at="[::1]") == 421


@pytest.mark.parametrize("wrong", ["http://lab.example", "*", "lab.example/mcp", "", "lab.example:port"])
def test_what_is_no_name_is_refused_at_the_start(deployment: Deployment, wrong: str) -> None:
    deployment.settings |= {"http__allowed_hosts": f'["{wrong}"]', "http__allow_anonymous": "true"}
    done = subprocess.run(
        serve_command(0), env=deployment.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "http.allowed_hosts" in done.stderr


async def made_by(server: Served, host: str) -> dict[str, Any]:
    """The artifact of a task of a client that knows the server by that name."""
    async with connect(server.url, "2025", token=TOKEN, headers={"Host": host}) as peer:
        task = await peer.tool("submit_task", tool_name="big", inputs={"size": 10})
        done = await peer.tool("wait_for_task", task_id=task["task_id"], timeout_s=60)
        (artifact,) = done["artifacts"]
        (listed,) = (await peer.tool("list_task_artifacts", task_id=task["task_id"]))["artifacts"]
        assert listed["download_url"].partition("?")[0] == artifact["download_url"].partition("?")[0]
    return dict(artifact)


async def test_links_have_the_name_that_the_client_used(named: Served) -> None:
    for host in (f"Lab.Example:{named.port}", "lab.example", f"[::1]:{named.port}"):
        link = (await made_by(named, host))["download_url"]
        assert link.startswith(f"http://{host.lower()}/artifacts/")
    here = (await made_by(named, f"127.0.0.1:{named.port}"))["download_url"]
    async with httpx2.AsyncClient() as http:
        assert (await http.get(here)).content == b"\x00\x01" * 1000


async def test_the_links_of_a_public_address_have_that(public: Served) -> None:
    link = (await made_by(public, f"localhost:{public.port}"))["download_url"]
    assert link.startswith("https://[2001:db8::7]:8443/tasks/artifacts/")


async def test_links_say_what_a_proxy_says_of_its_client(named: Served) -> None:
    headers = {"Host": "lab.example", "X-Forwarded-Proto": "https"}
    async with connect(named.url, "2026", token=TOKEN, headers=headers) as peer:
        done = await peer.poll(await peer.start("big", {"size": 300_000}))
        assert done["result"]["structuredContent"]["download_url"].startswith(
            "https://lab.example/artifacts/"
        )
