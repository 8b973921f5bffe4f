"""The card on a server: named by the tools that it shows, read as a resource, with tools of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp.server.context import CallNext, HandlerResult

from ...tools import ToolSpec
from ..access import TaskAccess
from ..pages import EXTENSION, MEDIA_TYPE, UI, on_a_card, shows_pages
from ..request import RequestContext, as_dict, completed, is_modern, validate
from ..server_dialect import Around, OwnTool, ServerDialect
from .document import ADDRESS, page
from .tools import CardTools

#: It asks for nothing: no addresses, no permissions. The host draws the frame around it.
_META = {UI: {"prefersBorder": True}}
_LISTED = {
    "uri": ADDRESS,
    "name": "backburner-task-card",
    "title": "Task card",
    "description": "Shows a task while it runs: progress, log, questions, files and result",
    "mimeType": MEDIA_TYPE,
    "_meta": _META,
}
_FRESH_MS = 3_600_000


class TaskCard(ServerDialect):
    """Shows what the two-stage return hands out. `others` are those who may take a call before that."""

    def __init__(self, access: TaskAccess, others: Sequence[ServerDialect]) -> None:
        self._access = access
        self._others = others
        self._tools = CardTools(access)

    @property
    def _is_on(self) -> bool:
        return self._access.settings.mcp.card

    def own_tools(self) -> Mapping[str, OwnTool]:
        return self._tools.own_tools() if self._is_on else {}

    def around(self) -> Mapping[str, Around]:
        if not self._is_on:
            return {}
        return {"resources/list": self.list_resources, "resources/read": self.read}

    def announce(self, capabilities: dict[str, Any], version: str) -> None:
        if self._is_on:
            capabilities["extensions"] = {EXTENSION: {}, **(capabilities.get("extensions") or {})}

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        """A slow tool with the card that shows it.

        Its call is answered by a handle, so it promises no output; unless the client has tasks of its own.
        """
        if not on_a_card(ctx, spec, self._access.settings):
            return tool
        meta = tool.get("_meta") or {}
        shown = {**tool, "_meta": {**meta, UI: {**(meta.get(UI) or {}), "resourceUri": ADDRESS}}}
        if not any(other.takes(ctx, spec) for other in self._others):
            shown.pop("outputSchema", None)
        return shown

    async def list_resources(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = as_dict(await call_next(ctx))
        if result.get("nextCursor") or not shows_pages(ctx):
            return result
        return {**result, "resources": [*result["resources"], _LISTED]}

    async def read(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if (ctx.params or {}).get("uri") != ADDRESS:
            return await call_next(ctx)
        validate(ctx)
        contents = {"uri": ADDRESS, "mimeType": MEDIA_TYPE, "text": page(), "_meta": _META}
        result: dict[str, Any] = {"contents": [contents]}
        if is_modern(ctx):
            result |= {"ttlMs": _FRESH_MS, "cacheScope": "public"}
        return completed(ctx, result)
