"""The hosts: how each is installed, configured and started."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.interop.environment import Unavailable
from tests.system.interop.environment import run as run_command

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".hosts"
_RECIPE = Path(__file__).with_name("package.json")
_PACKAGES = FOLDER / "node_modules"
_CPU = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True)
class Setup:
    """What a host is configured for. It writes files only in `home` and `work`."""

    program: Path
    home: Path
    work: Path
    server: Sequence[str]
    server_environment: Mapping[str, str]
    model_url: str
    prompt: str
    timeout_s: int | None

    def stdio(self, **more: object) -> dict[str, object]:
        """Return the server in the form that most hosts read."""
        command, *arguments = self.server
        return {"command": command, "args": arguments, "env": {**self.server_environment}, **more}

    def timeout(self, key: str, unit: int = 1000) -> dict[str, int]:
        return {} if self.timeout_s is None else {key: self.timeout_s * unit}


Launch = tuple[list[str], dict[str, str]]


@dataclass(frozen=True)
class Host:
    """A host. Without a package it runs only where its user has installed it."""

    title: str
    package: str | None
    program: str
    launch: Callable[[Setup], Launch]
    on_terminal: bool = False

    def find(self) -> Path | None:
        if self.package is None:
            found = shutil.which(self.program)
            return Path(found).resolve() if found else None
        path = _PACKAGES / self.program.format(cpu=_CPU)
        return path if path.exists() else None

    def version(self) -> str:
        if self.package is None:
            said = subprocess.run(
                [str(self.find()), "--version"], capture_output=True, text=True, timeout=60, check=True
            )
            return next((word for word in said.stdout.split() if word[0].isdigit()), "").rstrip(".")
        recipe = json.loads(_RECIPE.read_text())
        return str((recipe["dependencies"] | recipe["optionalDependencies"])[self.package.format(cpu=_CPU)])


def install() -> None:
    """Install the pinned hosts, unless they are installed. Raises Unavailable."""
    stamp = FOLDER / ".installed"
    if stamp.exists() and stamp.read_text() == _RECIPE.read_text():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed: `make services` as root, or install Node with npm")
    shutil.rmtree(_PACKAGES, ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    shutil.copy(_RECIPE, FOLDER)
    options = ["--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    run_command([npm, "install", *options], working_directory=FOLDER)
    shutil.copy(_RECIPE, stamp)


def search_path() -> str:
    """Return the PATH of a host: with the pinned Node first."""
    return os.pathsep.join((str(_PACKAGES / f"node-linux-{_CPU}" / "bin"), os.environ["PATH"]))


def _write(path: Path, content: Mapping[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def _codex(setup: Setup) -> Launch:
    home = setup.home / ".codex"
    command, *arguments = setup.server
    environment = ", ".join(f"{key} = {json.dumps(value)}" for key, value in setup.server_environment.items())
    limit = "" if setup.timeout_s is None else f"tool_timeout_sec = {setup.timeout_s}"
    config = f"""
        model = "gpt-5.4"
        model_provider = "scripted"
        check_for_update_on_startup = false
        [analytics]
        enabled = false
        [feedback]
        enabled = false
        [model_providers.scripted]
        name = "scripted"
        base_url = "{setup.model_url}/v1"
        wire_api = "responses"
        env_key = "MODEL_KEY"
        [mcp_servers.lab]
        command = {json.dumps(command)}
        args = {json.dumps(arguments)}
        env = {{ {environment} }}
        required = true
        startup_timeout_sec = 60
        {limit}
    """
    _write(home / "config.toml", "\n".join(line.strip() for line in config.splitlines()))
    options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    environ = {"CODEX_HOME": str(home), "MODEL_KEY": "dummy"}
    return [str(setup.program), "exec", *options, setup.prompt], environ


def _gemini(setup: Setup) -> Launch:
    settings = {
        "mcpServers": {"lab": setup.stdio(trust=True, **setup.timeout("timeout"))},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    _write(setup.home / ".gemini" / "settings.json", settings)
    options = ["-m", "gemini-2.5-flash", "--approval-mode", "yolo", "--output-format", "stream-json"]
    environment = {
        "GEMINI_API_KEY": "dummy",
        "GOOGLE_GEMINI_BASE_URL": setup.model_url,
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    return [str(setup.program), *options, "-p", setup.prompt], environment


def _opencode(setup: Setup) -> Launch:
    model = {"name": "scripted", "limit": {"context": 200_000, "output": 8000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{setup.model_url}/v1", "apiKey": "dummy"},
        "models": {"scripted": model},
    }
    server = {
        "type": "local",
        "command": setup.server,
        "environment": setup.server_environment,
        "enabled": True,
        **setup.timeout("timeout"),
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "mcp": {"lab": server},
        "permission": {"*": "allow"},
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "provider": {"scripted": provider},
    }
    _write(setup.work / "opencode.json", config)
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    environment = {f"OPENCODE_DISABLE_{switch}": "1" for switch in switches}
    return [str(setup.program), "run", "--format", "json", setup.prompt], environment


def _goose(setup: Setup) -> Launch:
    command, *arguments = setup.server
    extension = {
        "enabled": True,
        "type": "stdio",
        "name": "lab",
        "description": "lab",
        "cmd": command,
        "args": arguments,
        "envs": setup.server_environment,
        "env_keys": [],
        **setup.timeout("timeout", 1),
    }
    # JSON is YAML.
    _write(setup.home / ".config" / "goose" / "config.yaml", {"extensions": {"lab": extension}})
    environment = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "scripted",
        "OPENAI_HOST": setup.model_url,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "OPENAI_API_KEY": "dummy",
        "GOOSE_MODE": "auto",
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_TELEMETRY_OFF": "1",
    }
    return [str(setup.program), "run", "-t", setup.prompt], environment


def _cline(setup: Setup) -> Launch:
    settings = setup.home / ".cline" / "data" / "settings" / "cline_mcp_settings.json"
    server = setup.stdio(type="stdio", disabled=False, **setup.timeout("timeout", 1))
    _write(settings, {"mcpServers": {"lab": server}})
    program = str(setup.program)
    environment = {"CLINE_TELEMETRY_DISABLED": "1", "CLINE_NO_AUTO_UPDATE": "1"}
    sign_in = [program, "auth", "--provider", "openai", "--apikey", "dummy", "--modelid", "scripted"]
    subprocess.run(
        [*sign_in, "--baseurl", f"{setup.model_url}/v1"],
        env={**os.environ, **environment},
        cwd=setup.work,
        timeout=60,
        capture_output=True,
        check=False,
    )
    return [program, "--json", setup.prompt], environment


def _copilot(setup: Setup) -> Launch:
    home = setup.home / ".copilot"
    server = setup.stdio(type="local", tools=["*"], **setup.timeout("timeout"))
    _write(home / "mcp-config.json", {"mcpServers": {"lab": server}})
    options = ["--allow-all-tools", "--no-auto-update", "--disable-builtin-mcps", "--output-format", "json"]
    environment = {
        "COPILOT_PROVIDER_BASE_URL": f"{setup.model_url}/v1",
        "COPILOT_PROVIDER_API_KEY": "dummy",
        "COPILOT_MODEL": "scripted",
        "COPILOT_OFFLINE": "true",
        "COPILOT_HOME": str(home),
    }
    return [str(setup.program), *options, "-p", setup.prompt], environment


def _claude(setup: Setup, *options: str) -> Launch:
    config = setup.home / "mcp.json"
    _write(config, {"mcpServers": {"lab": setup.stdio(type="stdio")}})
    tools = ["--allowedTools", "mcp__lab", "ToolSearch"]
    command = [str(setup.program), *options, "--mcp-config", str(config), "--strict-mcp-config", *tools]
    environment = {
        "ANTHROPIC_BASE_URL": setup.model_url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **{key: str(value) for key, value in setup.timeout("MCP_TOOL_TIMEOUT").items()},
    }
    return [*command, "--", setup.prompt], environment


def _claude_headless(setup: Setup) -> Launch:
    return _claude(setup, "-p", "--output-format", "stream-json", "--verbose")


def _claude_terminal(setup: Setup) -> Launch:
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    state = {
        "hasCompletedOnboarding": True,
        "lastOnboardingVersion": "9.9.9",
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
        "projects": {str(setup.work): project},
    }
    _write(setup.home / ".claude.json", state)
    return _claude(setup)


HOSTS = {
    "codex": Host("Codex", "@openai/codex", "@openai/codex/bin/codex.js", _codex),
    "gemini": Host("Gemini CLI", "@google/gemini-cli", ".bin/gemini", _gemini),
    "opencode": Host("opencode", "opencode-ai", "opencode-linux-{cpu}/bin/opencode", _opencode),
    "goose": Host(
        "Goose",
        "@aaif/goose-binary-linux-{cpu}",
        "@aaif/goose-binary-linux-{cpu}/bin/goose",
        _goose,
    ),
    "cline": Host("Cline CLI", "cline", "@cline/cli-linux-{cpu}/bin/cline", _cline),
    "copilot": Host("Copilot CLI", None, "copilot", _copilot),
    "claude": Host("Claude Code, `-p`", None, "claude", _claude_headless),
    "claude-terminal": Host("Claude Code, terminal", None, "claude", _claude_terminal, on_terminal=True),
}
