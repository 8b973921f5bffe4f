"""A client that connects and says nothing, or a crowd of them, takes nothing from the others."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from tests.deployment import Deployment, HttpServer
from tests.integration.mcp_server.harness import connect
from tests.services import ended, until

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def dial(server: HttpServer) -> socket.socket:
    address = urlsplit(server.address)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def test_a_connection_on_which_nothing_is_asked_is_ended(deployment: Deployment) -> None:
    deployment.settings |= {"http__idle_timeout_s": "1"}
    with deployment.http() as server:
        for said in (b"", b"GET /healthz HT", HEALTH):
            with dial(server) as client:
                client.sendall(said)
                while client.recv(4096):
                    pass  # until the server has ended it


@pytest.mark.whole
async def test_a_stream_and_a_held_call_are_not_idle(deployment: Deployment) -> None:
    deployment.settings |= {"http__idle_timeout_s": "2"}
    with deployment.http() as server:
        async with connect(server.url, "2025", tasks=False) as peer:
            assert (await peer.call("hold", {"step_s": 4}))["structuredContent"] == {"held": True}


def test_a_connection_on_which_something_is_asked_again_and_again_stays(deployment: Deployment) -> None:
    deployment.settings |= {"http__idle_timeout_s": "3"}
    with deployment.http() as server:
        client = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=30)
        client.auto_open = 0
        client.connect()
        began = time.monotonic()
        while time.monotonic() - began < 4.5:
            client.request("GET", "/healthz")
            assert client.getresponse().read() == b"ok\n"
        client.close()


@pytest.mark.whole
async def test_a_held_call_that_came_by_a_proxy_is_not_idle(deployment: Deployment) -> None:
    deployment.settings |= {"http__idle_timeout_s": "2"}
    by_proxy = {"X-Forwarded-For": "192.0.2.7"}
    with deployment.http() as server:
        async with connect(server.url, "2026", tasks=False, headers=by_proxy) as peer:
            assert (await peer.call("hold", {"step_s": 4}))["structuredContent"] == {"held": True}


@pytest.mark.whole
async def test_more_clients_than_there_may_be_are_turned_away_and_come_in_when_others_go(
    deployment: Deployment,
) -> None:
    deployment.settings |= {"http__max_connections": "5"}
    with deployment.http() as server, contextlib.ExitStack() as crowd:
        silent = [crowd.enter_context(dial(server)) for _ in range(8)]
        turned_away = [client for client in silent if is_turned_away(client)]
        assert 3 <= len(turned_away) < 8
        for client in silent:
            client.close()
        async with httpx2.AsyncClient(timeout=60) as web:

            async def answers() -> bool:
                return (await web.get(f"{server.address}/healthz")).status_code == 200

            await until(lambda: not still_crowded(server))
            assert await answers()


def is_turned_away(client: socket.socket) -> bool:
    client.settimeout(2)
    with contextlib.suppress(TimeoutError):
        return client.recv(4096).startswith(b"HTTP/1.1 503")
    return False


def still_crowded(server: HttpServer) -> bool:
    with dial(server) as client:
        client.sendall(HEALTH)
        return client.recv(4096).startswith(b"HTTP/1.1 503")


SIGN_IN = b"POST /dashboard/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


def test_a_request_whose_body_does_not_come_is_ended(deployment: Deployment) -> None:
    deployment.settings |= {"http__idle_timeout_s": "1"}
    deployment.settings |= {"http__auth__jwt_key": "a shared secret of more than 32 bytes"}
    with deployment.http() as server, dial(server) as silent, dial(server) as slow:
        for client in (silent, slow):
            client.sendall(SIGN_IN)
            client.settimeout(0.2)
        said = b""
        for _ in range(90):  # its body takes 18 s: a byte at a time
            with contextlib.suppress(TimeoutError, ConnectionError):
                slow.send(b"x")
                said += slow.recv(4096)
            if said:
                break
        assert said.startswith(b"HTTP/1.1 408")
        silent.settimeout(30)
        assert silent.recv(4096).startswith(b"HTTP/1.1 408")
        assert silent.recv(4096) == b""


def test_a_request_whose_body_does_not_come_does_not_hold_up_the_end(deployment: Deployment) -> None:
    deployment.settings |= {"http__auth__jwt_key": "a shared secret of more than 32 bytes"}
    with deployment.http() as server, dial(server) as silent:
        silent.sendall(SIGN_IN)
        assert httpx2.get(f"{server.address}/healthz").status_code == 200
        process = psutil.Process(server.pid)
        process.terminate()
        assert ended(process, within=15)


def test_a_request_whose_headers_do_not_end_is_refused(deployment: Deployment) -> None:
    with deployment.http() as server, dial(server) as client:
        client.sendall(HEALTH.removesuffix(b"\r\n"))
        with contextlib.suppress(ConnectionError):  # the server has heard enough
            for _ in range(1000):
                client.sendall(b"X-More: " + b"x" * 10_000 + b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert client.recv(4096).startswith(b"HTTP/1.1 4")
