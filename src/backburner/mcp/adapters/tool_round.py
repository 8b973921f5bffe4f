"""One round of a call of an attached tool: what it is told, and what it comes to.

A tool may come to an `InputRequiredResult`, and is called again with the responses and its own state. The
revision that it sees in a runner has no words for that, and a server may seal states for minutes only, while
people take days. So both go past the server's pipeline, between here and the handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types.methods import is_input_required

from ..request import RequestContext

_CALL = "tools/call"


@dataclass
class Round:
    """`came_to` is what the framework has no words for here: a protocol error, or input that is required."""

    responses: Mapping[str, Any]
    state: str | None = None
    came_to: MCPError | types.InputRequiredResult | None = None


#: The round that is under way; None outside a runner.
ROUND: ContextVar[Round | None] = ContextVar("backburner_round", default=None)


def listen_to_tools(server: Server[Any]) -> None:
    """Have the rounds heard of by the handler of the server's tools; it may be said for each."""
    entry = server.get_request_handler(_CALL)
    if entry is not None and not isinstance(entry.handler, _RoundHandler):
        server.add_request_handler(_CALL, entry.params_type, _RoundHandler(entry.handler))


class _RoundHandler:
    """The server's own handler, with the round put into the request and taken out of the result."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    async def __call__(self, ctx: RequestContext, params: Any) -> Any:
        under_way = ROUND.get()
        if under_way is None:
            return await self._handler(ctx, params)
        if under_way.state is not None:
            ctx = replace(ctx, params={**(ctx.params or {}), "requestState": under_way.state})
            params = params.model_copy(update={"request_state": under_way.state})
        try:
            result = await self._handler(ctx, params)
        except MCPError:
            # FastMCP says so that it cannot ask at this revision; its adapter has noted what it is about.
            if not isinstance(under_way.came_to, types.InputRequiredResult):
                raise
            return types.CallToolResult(content=[])
        if is_input_required(result):
            under_way.came_to = types.InputRequiredResult.model_validate(result)
            return types.CallToolResult(content=[])
        return result
