"""How long calls of which client are held."""

from pathlib import Path
from typing import Any

import pytest

from backburner.config import McpSettings, Settings
from backburner.errors import ConfigError
from backburner.mcp.patience import patience_s
from tests.deployment import Deployment
from tests.source_documents.pipe import serving


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("somebody new", "1.0", 50),
        ("", "", 50),
        ("mcp", "0.1.0", 4),
        ("Cursor-VSCode", "1.0.0", 48),
        ("claude-ai", "0.1.0", 48),
        ("goose", "1.2", 240),
        ("gemini-cli-mcp-client", "0.1", 480),
        ("mcp-inspector", "0.9.3", 8),
        ("mcp-inspector", "0.17.2", 240),
        ("Visual Studio Code", "1.99", None),
    ],
)
def test_each_client_has_its_patience(name: str, version: str, expected: float | None) -> None:
    assert patience_s(name, version, Settings()) == expected


def test_a_patience_that_is_set_holds_for_all_clients() -> None:
    assert patience_s("cursor", "1", Settings(mcp=McpSettings(patience_s=5))) == 5
    assert patience_s("Visual Studio Code", "1", Settings(mcp=McpSettings(patience_s=0))) == 0
    settings = Settings.from_json(Settings(mcp=McpSettings(patience_s=50)).to_json())
    assert patience_s("mcp", "1", settings) == 50


@pytest.mark.parametrize(("given", "held"), [("", False), ("50s", True)])
def test_a_patience_that_is_set_counts_also_when_it_is_what_most_clients_get(
    deployment: Deployment, tmp_path: Path, given: str, held: bool
) -> None:
    """The tool should take 20 s, the client is known to wait for 5, and the operator says that it waits."""
    deployment.settings = {"mcp__patience_s": given} if given else {}
    (tmp_path / "indexed").touch()
    with serving(deployment) as pipe:
        pipe.initialize("mcp")
        answer = pipe.request("tools/call", name="wksm_vault_index", arguments={"path": str(tmp_path)})
        assert (answer["structuredContent"] == {"notes": 3}) is held


def test_named_clients_can_be_set_by_version() -> None:
    chosen = {"my-host@2.*": "10m", "My-Host": "4s", "cursor*": "forever"}
    settings = Settings.load("lab", {"mcp": {"client_patience": chosen, "patience_s": 7}}, {})
    assert patience_s("my-host", "2.1", settings) == 600
    assert patience_s("my-host", "1.9", settings) == 4
    assert patience_s("cursor-vscode", "1", settings) is None
    assert patience_s("other", "1", settings) == 7


@pytest.mark.parametrize("chosen", [{"cursor": "soon"}, {"cursor": -1}, ["cursor"], 5])
def test_a_setting_that_cannot_be_read_is_named(chosen: Any) -> None:
    with pytest.raises(ConfigError, match="client_patience"):
        Settings.load("lab", {"mcp": {"client_patience": chosen}}, {})
