"""Hosts: how long each waits for the answer to a call, what restarts its clock, and how it gives up.

As of November 2026. Codex, Gemini CLI, opencode, Cline, Copilot CLI and Goose are as seen in real runs. The
clocks of the others are from their own repositories and issue trackers. Their versions are a guess, and so
are some names and ways of giving up, where those say nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .connections import MODERN

GivesUp = Literal["cancels", "silently", "hangs up"]
Tasks = Literal["2026-07-28", "2025-11-25", "TaskId"]


@dataclass(frozen=True)
class Host:
    """A host. `name` and `version` are what it tells servers of itself; None is no limit.

    `wall_s` is how long a call may take; `idle_s` how long nothing may be heard of it, where progress is.
    After `background_s` it lets its model go on, and gives it the answer later. `reason` is that of its
    cancels, if not the words of the TypeScript SDK. Of one that is not known, no table has anything.
    """

    title: str
    name: str
    version: str = "1.0.0"
    over: Literal["stdio", "http"] = "stdio"
    wall_s: float | None = None
    idle_s: float | None = None
    background_s: float | None = None
    gives_up: GivesUp = "cancels"
    reason: str = ""
    modern: bool = False
    wants_progress: bool = True
    is_known: bool = True
    tasks: Tasks | None = None

    @property
    def protocol(self) -> str:
        return MODERN if self.modern or self.tasks == "2026-07-28" else "2025-11-25"

    @property
    def capabilities(self) -> Mapping[str, Any]:
        if self.tasks == "2026-07-28":
            return {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        if self.tasks == "2025-11-25":
            return {"tasks": {"list": {}, "cancel": {}}}
        return {}

    @property
    def has_tasks(self) -> bool:
        return self.tasks is not None

    @property
    def waits(self) -> str:
        """How long it waits, in a few words."""
        if self.tasks is not None:
            return f"tasks, {self.tasks}" if self.tasks != "TaskId" else "TaskId"
        if self.idle_s is None:
            return _span(self.wall_s)
        whole = f", {_span(self.wall_s)} in all" if self.wall_s is not None and self.wall_s < 3600 else ""
        return f"{_span(self.idle_s)} of silence{whole}"


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "for ever"
    return f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min"


#: What a person at a terminal would wait at most.
_DAY_S = 28 * 3600.0

HOSTS = (
    Host("MCPJam", "mcpjam-inspector", over="http", tasks="2026-07-28"),
    Host("VS Code", "Visual-Studio-Code", "1.118.0", tasks="2025-11-25"),
    Host("a host of the TaskId contract", "chatos", tasks="TaskId"),
    Host("Claude Code", "claude-code", "2.1.220", wall_s=_DAY_S, idle_s=1800, background_s=120),
    Host("Claude Code, HTTP", "claude-code", "2.1.220", "http", _DAY_S, idle_s=300, background_s=120),
    Host("Gemini CLI", "gemini-cli-mcp-client", "0.61.0", "http", wall_s=600),
    Host("Codex", "codex-mcp-client", "0.169.0", wall_s=300, reason="MCP request cancelled by caller"),
    Host("Goose", "goose-cli", "1.52.0", wall_s=300, gives_up="silently", modern=True),
    Host("Copilot CLI", "copilot-cli", "1.0.102", idle_s=180, modern=True),
    Host("opencode", "opencode", "1.18.33", "http", idle_s=60),
    Host("claude.ai", "claude-ai", "0.1.0", "http", wall_s=60),
    Host("Cline", "@cline/core", "0.0.0", wall_s=60, gives_up="silently", wants_progress=False),
    Host("ChatGPT", "openai-mcp", over="http", wall_s=60, gives_up="hangs up", wants_progress=False),
    Host("unknown, 60 s", "some-agent", over="http", wall_s=60, wants_progress=False, is_known=False),
    Host("unknown, 15 s", "hasty-agent", over="http", wall_s=15, wants_progress=False, is_known=False),
    Host("OpenAI Agents SDK", "mcp", "0.1.0", wall_s=5, gives_up="silently", wants_progress=False),
)
