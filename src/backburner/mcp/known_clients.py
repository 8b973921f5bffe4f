"""What is known of clients' clocks, by the names that they send: the shipped table, each row with its source.

A limit that is taken too long makes calls fail; one that is taken too short costs a second call. So where
reports disagree, the shorter one stands here. Names are as clients send them in `clientInfo`: from their
sources, or from apify/mcp-client-capabilities. Who is not found here is unknown (docs/decisions/0028).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .showing import Client

#: What the Python SDK calls itself, and so any program that is made with it.
SDK_NAME = "mcp"
FOREVER = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """When a client gives up on a call: at `wall_s` whatever happens, or after `idle_s` without an answer.

    None: never. `restarts` says that the idle clock begins anew with each progress.
    """

    wall_s: float | None = FOREVER
    idle_s: float | None = FOREVER
    restarts: bool = False

    def patience_s(self, *, with_progress: bool) -> float | None:
        """How long an answer may take, where the client hears of progress meanwhile, or nothing."""
        clocks = (self.wall_s,) if with_progress and self.restarts else (self.wall_s, self.idle_s)
        return min((clock for clock in clocks if clock is not None), default=FOREVER)


@dataclass(frozen=True, slots=True)
class _Row:
    """The clocks of clients whose name fits, from a version on; over one transport only, if it says so."""

    name: str
    clocks: Clocks
    since: tuple[int, ...] = ()
    over_http: bool | None = None

    def fits(self, client: Client) -> bool:
        return (
            self.over_http in (None, client.over_http)
            and fnmatchcase(client.name.casefold(), self.name)
            and _numbers(client.version) >= self.since
        )


#: The last that fits counts.
_TABLE = (
    # The OpenAI Agents SDK and Google's ADK send the SDK's name, too (5 s: adk-python#1463); LlamaIndex and
    # Langflow wait for 30 s (llama_index#20270, langflow#11347).
    _Row(SDK_NAME, Clocks(5)),
    _Row("openai-mcp*", Clocks(60)),  # ChatGPT's apps: OpenAI's forum
    _Row("chatgpt", Clocks(60)),  # the same; name: apify
    # claude.ai: claude-ai-mcp#115. The desktop app sends this name too (ezyang/codemcp#263), and waits
    # for 60 s (claude-code#22542) or 240 s (#44032, #65643).
    _Row("claude-ai", Clocks(60)),
    # Name: claude-code#43299. 60 s is reported of earlier versions (#18684) and of the desktop app (#63379).
    _Row("claude-code*", Clocks(60)),
    # Idle clocks: #70441, laurigates/claude-plugins#2059; progress restarts them: vfarcic/dot-ai#708.
    _Row("claude-code", Clocks(100_000, 1800, restarts=True), since=(2, 1, 187), over_http=False),
    _Row("claude-code", Clocks(100_000, 300, restarts=True), since=(2, 1, 187), over_http=True),
    # 60 s (orbiqd-briefkit#13, 0.92), then 120 s, and 300 s since June 2026 (codex#28234). Both names: apify.
    _Row("codex*", Clocks(60)),
    _Row("codex*", Clocks(300), since=(0, 144)),
    _Row("cursor*", Clocks(300)),  # cursor#3510; name (cursor-vscode): apify
    _Row("cline*", Clocks(60)),  # DEFAULT_MCP_TIMEOUT_SECONDS and name: its McpHub.ts; cline#12576
    _Row("roo*", Clocks(60)),  # as configured, progress does not help: Roo-Code#10478; name (Roo-Code): apify
    _Row("zed", Clocks(60)),  # DEFAULT_REQUEST_TIMEOUT: its context_server/src/client.rs, zed#45378
    _Row("goose*", Clocks(300)),  # goose#8295; name: apify
    _Row("gemini-cli*", Clocks(600)),  # MCP_DEFAULT_TIMEOUT_MSEC and name: its mcp-client.ts
    # Progress restarts the 60 s (opencode#32477), and 5 min are the most (#39584); name: apify
    _Row("opencode", Clocks(300, 60, restarts=True)),
    _Row("antigravity*", Clocks(180)),  # antigravity-cli#780; name (antigravity-client): apify
    _Row("github-copilot-developer", Clocks(60)),  # copilot-cli#1535; name: apify
    _Row("langchain-mcp-adapter", Clocks(60)),  # langchainjs#9136; name: its client.ts
    _Row("jan-*", Clocks(30)),  # jan#6733; name (Jan-Streamable-Client): apify
    # MCP_SERVER_REQUEST_TIMEOUT, which progress restarts, and MCP_REQUEST_MAX_TOTAL_TIMEOUT of its README
    _Row("*inspector*", Clocks(60, 10, restarts=True)),
    _Row("*inspector*", Clocks(60, 300, restarts=True), since=(0, 17)),
    # No limit over stdio (vscode#311595), 5 min reported over HTTP (#261734, #274094); both names: apify
    _Row("visual?studio?code*", Clocks()),
    _Row("visual?studio?code*", Clocks(300), over_http=True),
    _Row("backburner*", Clocks()),
)


def known_clocks(client: Client) -> Clocks | None:
    """What the table says of a client; None: nothing."""
    return next((row.clocks for row in reversed(_TABLE) if row.fits(client)), None)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()
