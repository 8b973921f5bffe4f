"""Which tools of a server are slow, and what is known of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from mcp.server.context import CallNext

from ..tools import ToolSpec
from .request import RequestContext, as_dict


class SlowTools(Protocol):
    """The slow tools among a server's, as its adapter knows them."""

    def find(self, name: Any) -> ToolSpec | None:
        """The slow tool of that name, if it is known already."""
        ...

    def may_be(self, name: Any) -> bool:
        """Whether a tool of that name, not known yet, would be slow."""
        ...

    def learn(self, listed: list[dict[str, Any]]) -> None:
        """Take note of the server's own tools, as it lists them."""
        ...


class ToolKnowledge:
    """Learns the server's tools from its own list, when they are first needed."""

    def __init__(self, slow_tools: SlowTools) -> None:
        self._slow_tools = slow_tools
        self._complete = False

    def known(self, name: Any) -> ToolSpec | None:
        """The slow tool of that name, if it is known already."""
        return self._slow_tools.find(name)

    async def slow_tool(self, ctx: RequestContext, call_next: CallNext, name: Any) -> ToolSpec | None:
        """The slow tool of that name; the server is asked for its list if that could tell."""
        spec = self._slow_tools.find(name)
        if spec is None and self._slow_tools.may_be(name):
            await self.learn(ctx, call_next)
            spec = self._slow_tools.find(name)
        return spec

    async def all_known(self, ctx: RequestContext, call_next: CallNext) -> None:
        """Know every slow tool from now on."""
        if not self._complete:
            await self.learn(ctx, call_next)

    async def learn(self, ctx: RequestContext, call_next: CallNext) -> list[dict[str, Any]]:
        """The server's own tools, as it lists them now."""
        params: dict[str, Any] = {"_meta": (ctx.params or {}).get("_meta") or {}}
        tools: list[dict[str, Any]] = []
        while True:
            result = as_dict(await call_next(replace(ctx, method="tools/list", params=params)))
            tools += result["tools"]
            self.take_note(result)
            if not result.get("nextCursor"):
                return tools
            params = {**params, "cursor": result["nextCursor"]}

    def take_note(self, result: dict[str, Any]) -> None:
        """Learn from a page of the server's list."""
        self._slow_tools.learn(result["tools"])
        if not result.get("nextCursor"):
            self._complete = True
