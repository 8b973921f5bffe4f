"""How long calls of which client are held."""

from pathlib import Path
from typing import Any

import pytest

from backburner.core.monitoring import ClientTimeout
from backburner.errors import ConfigError
from backburner.mcp.client_timeouts import Limits, TimeoutPolicy, Timeouts, is_timeout, limits
from backburner.mcp.results import Client
from backburner.settings import McpSettings, Settings
from tests.deployment import Deployment
from tests.integration.source_documents.pipe import serving


def patience_s(
    name: str, version: str, settings: Settings | None = None, *, progress: bool = False, http: bool = False
) -> float | None:
    """How long a call is held; with progress, if its client sent a token for it."""
    limits = TimeoutPolicy(settings or Settings()).limits(Client(name, version, over_http=http))
    return limits.hold_s(with_progress=progress)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("somebody new", "1.0", 24),
        ("", "", 24),
        ("mcp", "0.1.0", 4),
        ("cursor-vscode", "1.0.0", 298.5),
        ("claude-ai", "0.1.0", 58.5),
        ("claude-code", "2.1.9", 58.5),
        ("Codex", "0.92.0", 58.5),
        ("codex-mcp-client", "0.154.0", 298.5),
        ("Roo-Code", "3.1", 58.5),
        ("Cline", "3.38.1", 58.5),
        ("@cline/core", "0.0.0", 58.5),
        ("Zed", "0.2", 58.5),
        ("goose-cli", "1.52.0", 298.5),
        ("gemini-cli-mcp-client", "0.1", 598.5),
        ("mcp-inspector", "0.9.3", 8.5),
        ("mcp-inspector", "0.17.2", 58.5),
        ("Visual Studio Code", "1.99", None),
        ("Visual-Studio-Code", "1.107", None),
    ],
)
def test_each_client_has_its_patience(name: str, version: str, expected: float | None) -> None:
    assert patience_s(name, version) == expected


@pytest.mark.parametrize(
    ("name", "version", "http", "silent", "heard"),
    [
        ("claude-code", "2.1.212", False, 1798.5, 99_998.5),
        ("claude-code", "2.1.212", True, 298.5, 99_998.5),
        ("opencode", "1.18.33", False, 58.5, None),
        ("copilot-cli", "1.0.102", False, 178.5, None),
        ("Visual Studio Code", "1.99", True, 298.5, 298.5),
        ("somebody new", "1.0", True, 24, 24),
    ],
)
def test_progress_lengthens_patience_only_where_a_client_s_clock_restarts(
    name: str, version: str, http: bool, silent: float, heard: float | None
) -> None:
    assert patience_s(name, version, http=http) == silent
    assert patience_s(name, version, http=http, progress=True) == heard


def test_a_held_call_speaks_up_three_times_before_the_idle_clock_runs_out() -> None:
    assert TimeoutPolicy(Settings()).limits(Client("mcp-inspector", "0.9")).heartbeat_s < 10 / 3
    assert TimeoutPolicy(Settings()).limits(Client("claude-code", "2.1.212")).heartbeat_s == 10


BY_CALLER = "MCP request cancelled by caller"


@pytest.mark.parametrize(
    ("name", "reason", "waited_s", "timed_out"),
    [
        ("codex-mcp-client", BY_CALLER, 10.003, True),
        ("codex-mcp-client", BY_CALLER, 9.971, True),
        ("codex-mcp-client", BY_CALLER, 300.029, True),
        ("Codex", BY_CALLER, 1.0, True),
        ("codex-mcp-client", BY_CALLER, 10.031, False),
        ("codex-mcp-client", BY_CALLER, 7.4, False),
        ("codex-mcp-client", BY_CALLER, 0.01, False),
        ("codex-mcp-client", "Interrupted", 10.0, False),
        ("codex-mcp-client", None, 10.0, False),
        ("some-agent", BY_CALLER, 10.0, False),
        ("codex-mcp-client", "McpError: MCP error -32001: Request timed out", 7.4, True),
        ("some-agent", "McpError: MCP error -32001: Request timed out", 7.4, True),
    ],
)
def test_a_cancel_is_a_timeout_by_its_reason_and_from_codex_also_after_whole_seconds(
    name: str, reason: str | None, waited_s: float, timed_out: bool
) -> None:
    assert is_timeout(name, reason, waited_s) is timed_out


def test_a_cancel_of_codex_when_its_known_timeout_ends_is_a_timeout() -> None:
    policy, codex = TimeoutPolicy(Settings()), Client("codex-mcp-client", "0.169.0")
    assert policy.is_timeout(codex, BY_CALLER, 300.4)
    assert not policy.is_timeout(codex, BY_CALLER, 297.4)


# -- what time-outs teach

NOW, DAY = 1_800_000_000_000, 86_400_000


def taught(*waits_s: float, name: str = "somebody new", ago_ms: int = 0, silent_s: float = 1e9) -> Limits:
    """The limits of a client that gave up after so long, each time a second before the next."""
    seen = [
        ClientTimeout(
            name,
            "2.1.212",
            "stdio",
            NOW - ago_ms - 1000 * n,
            int(waited_s * 1000),
            int(min(silent_s, waited_s) * 1000),
        )
        for n, waited_s in enumerate(waits_s)
    ]
    return limits(Client(name, "2.1.212"), Settings(), seen, NOW)


def test_one_time_out_teaches_and_the_shortest_of_the_last_counts() -> None:
    assert taught(10) == Limits(Timeouts(10), "learned")
    assert taught(10, 5, 20).hold_s(with_progress=True) == 4


def test_what_one_time_out_taught_is_believed_for_a_day_and_what_two_agree_on_for_a_month() -> None:
    assert taught(3, ago_ms=DAY).source == "default"
    assert taught(10, 10.4, 3, ago_ms=DAY) == Limits(Timeouts(10), "learned")
    assert taught(10, 10.4, ago_ms=30 * DAY).source == "default"


def test_a_client_is_taken_for_more_patient_only_when_two_time_outs_agree() -> None:
    assert taught(200).source == "default"
    assert taught(200, 120).source == "default"
    assert taught(200, 201) == Limits(Timeouts(200), "learned")


def test_a_time_out_in_silence_is_of_the_idle_clock_where_progress_restarts_one() -> None:
    assert taught(60, name="claude-code").timeouts == Timeouts(100_000, 60, restarts=True)
    despite_progress = taught(60, name="claude-code", silent_s=3)
    assert despite_progress.timeouts == Timeouts(60, 1800, restarts=True)
    assert despite_progress.hold_s(with_progress=True) == 48


def test_a_patience_that_is_set_holds_for_all_clients() -> None:
    assert patience_s("cursor", "1", Settings(mcp=McpSettings(patience_s=5))) == 5
    assert patience_s("Visual Studio Code", "1", Settings(mcp=McpSettings(patience_s=0))) == 0
    settings = Settings.from_json(Settings(mcp=McpSettings(patience_s=50)).to_json())
    assert patience_s("mcp", "1", settings) == 50


@pytest.mark.parametrize(("given", "held"), [("", True), ("3s", False), ("50s", True)])
def test_a_program_that_is_not_known_to_give_up_gets_its_result_unless_a_patience_is_set(
    deployment: Deployment, tmp_path: Path, given: str, held: bool
) -> None:
    """The tool should take 20 s, and the client has the default name of an SDK."""
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
