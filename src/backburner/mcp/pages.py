"""Pages of servers in chats, as MCP Apps (`io.modelcontextprotocol/ui`) has them: who shows them, of what.

See the specification of 2026-01-26 in github.com/modelcontextprotocol/ext-apps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID, client_supports_apps

from ..config import Settings
from ..tools import ToolSpec
from .request import RequestContext

EXTENSION = EXTENSION_ID
MEDIA_TYPE = APP_MIME_TYPE
#: What a tool says in its `_meta` of its page: by the specification, as it once was, and as one host has it.
UI, _OLD_PAGE, _PAGE_OF_A_HOST = "ui", "ui/resourceUri", "openai/outputTemplate"
#: In the `_meta` of a handle: the task that a card is to show.
TASK_OF_CARD = "backburner/task"


def shows_pages(ctx: RequestContext) -> bool:
    """Whether the client of a request says that it shows pages; at 2026-07-28 each request says it."""
    return client_supports_apps(ctx)


def has_own_page(tool: Mapping[str, Any]) -> bool:
    """Whether the author of a tool, as it is listed, has a page of his own for it."""
    meta = tool.get("_meta") or {}
    of_ui = meta.get(UI)
    named = isinstance(of_ui, Mapping) and of_ui.get("resourceUri")
    return bool(named or meta.get(_OLD_PAGE) or meta.get(_PAGE_OF_A_HOST))


def on_a_card(ctx: RequestContext, spec: ToolSpec, settings: Settings) -> bool:
    """Whether the calls of a slow tool are shown on a card to the client of a request.

    Not those that are held to their end, and those that must be tasks of the protocol's: there the client
    has the call in hand.
    """
    handed_out = spec.task == "optional" and spec.answer_in(settings) != "hold" and not spec.requires_task_id
    return settings.mcp.card and spec.card and handed_out and shows_pages(ctx)
