"""One round of a call of an attached tool: what it is told, and what it comes to.

A tool may come to an `InputRequiredResult`, and is called again with the responses and its own state. The
revision that it sees in a runner has no words for that, and a server may seal states for minutes only, while
people take days. So both go past the server's pipeline, between here and the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types.methods import is_input_required

from ..request import RequestContext

_CALL = "tools/call"
_FRAMEWORKS = ("mcp.server.mcpserver.", "fastmcp.")


@dataclass
class Round:
    """`required` is the input that the tool wants, and `raised` what it raised: both are lost in a result."""

    responses: Mapping[str, Any]
    state: str | None = None
    required: types.InputRequiredResult | None = None
    raised: BaseException | None = None


#: The round that is under way; None outside a runner.
ROUND: ContextVar[Round | None] = ContextVar("backburner_round", default=None)


async def noting_what_is_raised(call: Awaitable[Any]) -> Any:
    """A framework's call of a tool, with what it raises noted in the round. Of tools that call others, the
    outermost ends last."""
    under_way, raised = ROUND.get(), None
    try:
        return await call
    except Exception as error:
        raised = _raised_by_tool(error)
        raise
    finally:
        if under_way is not None:
            under_way.raised = raised


def _raised_by_tool(error: BaseException) -> BaseException:
    """What is behind the errors that a framework itself has put around it."""
    while error.__cause__ is not None and _is_of_framework(error):
        error = error.__cause__
    return error


def _is_of_framework(error: BaseException) -> bool:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith(_FRAMEWORKS)


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
            if under_way.required is None:
                raise
            return types.CallToolResult(content=[])
        if is_input_required(result):
            under_way.required = types.InputRequiredResult.model_validate(result)
            return types.CallToolResult(content=[])
        return result
