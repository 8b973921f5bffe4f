"""Which client gets how large a result whole, and which is known to give up on a call."""

from __future__ import annotations

import pytest

from backburner.errors import ConfigError
from backburner.mcp.client_timeouts import TimeoutPolicy
from backburner.mcp.results import Client, most_bytes, most_tokens
from backburner.settings import McpSettings, Settings


@pytest.mark.parametrize(
    ("client", "largest"),
    [
        (Client(), 4_000_000),
        (Client("anybody", "1", over_http=True), 1_000_000),
        (Client("claude-ai"), 150_000),
        (Client("backburner-client", over_http=True), None),
    ],
)
def test_the_largest_result_is_by_client(client: Client, largest: int | None) -> None:
    assert most_bytes(client) == largest


@pytest.mark.parametrize(
    ("client", "settings", "longest"),
    [
        (Client(), McpSettings(), 20_000),
        (Client("anybody"), McpSettings(result_tokens=7), 7),
        (Client("anybody"), McpSettings(result_tokens=0), None),
        (Client("Host", "2.1"), McpSettings(client_result_tokens={"host@1.*": 1, "host@2.*": "any"}), None),
        (Client("backburner-client"), McpSettings(), None),
        (Client("backburner-client"), McpSettings(client_result_tokens={"backburner*": 5}), 5),
    ],
)
def test_the_longest_result_is_by_client(client: Client, settings: McpSettings, longest: int | None) -> None:
    assert most_tokens(client, Settings(mcp=settings)) == longest


def test_the_table_is_read_from_the_environment_and_checked() -> None:
    named = {"BACKBURNER_MCP__CLIENT_RESULT_TOKENS": '{"small": 50, "large": "any"}'}
    assert dict(Settings.load("lab", environment=named).mcp.client_result_tokens) == {
        "small": 50,
        "large": "any",
    }
    with pytest.raises(ConfigError, match="client_result_tokens"):
        Settings.load("lab", environment={"BACKBURNER_MCP__CLIENT_RESULT_TOKENS": '{"small": "much"}'})


@pytest.mark.parametrize(
    ("name", "version", "settings", "known"),
    [
        ("claude-code", "2", McpSettings(), True),
        ("Visual Studio Code", "1", McpSettings(), False),
        ("mcp", "1", McpSettings(), False),
        ("anybody", "1", McpSettings(patience_s=1), False),
        ("mcp", "1", McpSettings(client_patience={"mcp": 5}), True),
        ("claude-code", "2", McpSettings(client_patience={"claude*": "forever"}), False),
    ],
)
def test_a_client_gives_up_if_its_own_name_says_so(
    name: str, version: str, settings: McpSettings, known: bool
) -> None:
    assert TimeoutPolicy(Settings(mcp=settings)).is_known_to_give_up(Client(name, version)) is known
