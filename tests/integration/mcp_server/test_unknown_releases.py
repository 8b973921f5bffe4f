"""A release of the SDK, FastMCP or Python that lacks what we need is refused at once, and by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import fastmcp
import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer

from backburner import Backburner
from backburner.client import BackburnerClient
from backburner.errors import ConfigError
from backburner.mcp import sdk


@pytest.fixture(autouse=True)
def look_again() -> Iterator[None]:
    """The parts are looked for once in a process."""
    checks = (sdk.check_server_parts, sdk.check_client_parts, sdk.check_fastmcp_parts)
    for check in checks:
        check.cache_clear()
    yield
    for check in checks:
        check.cache_clear()


class Renamed:
    """A class of another release, which has nothing that we know."""


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mcp.server.session.ServerSession", "_connection"),
        ("mcp.server.connection.Connection", "state"),
        ("mcp.server.mcpserver.MCPServer", "_lowlevel_server"),
    ],
)
def test_a_server_is_refused_when_it_is_attached(
    name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [Server("lab"), MCPServer("lab")]
    monkeypatch.setattr(name, Renamed)
    for server in servers:
        with pytest.raises(ConfigError, match=rf"mcp [\d.]+ is not known: \w+ has no {part} any more"):
            Backburner.attach(server)


def test_a_fastmcp_server_of_another_generation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = fastmcp.FastMCP("lab")
    monkeypatch.setattr(fastmcp, "__version__", "5.0.0")
    with pytest.raises(ConfigError, match=re.escape("fastmcp 5.0.0 is not known")):
        Backburner.attach(server)


def test_a_client_is_refused_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp.client.session.ClientSession", Renamed)
    with pytest.raises(ConfigError, match="has no _stamp any more, needed for requests"):
        BackburnerClient("http://127.0.0.1:1/mcp")
