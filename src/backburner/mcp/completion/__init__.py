"""`completion/complete`: what a caller could write for an argument.

`answer_completion` is the only way in. The rest is imported with the first request, since few servers
are ever asked and JSON schema takes long to load.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.context import CallNext

from ...tools import ToolSpec
from ..access import TaskAccess
from ..request import RequestContext

#: Gives the schema of a tool's inputs, and its ToolSpec if it is slow; None when there is no such tool.
FindTool = Callable[[RequestContext, CallNext, str], Awaitable[tuple[Any, ToolSpec | None] | None]]


async def answer_completion(
    ctx: RequestContext, call_next: CallNext, access: TaskAccess, find_tool: FindTool
) -> dict[str, Any]:
    """The result of a `completion/complete` request.

    A tool's argument is asked for by `{name, partial_argument, arguments, context}`, where
    `partial_argument` is a text or `{name, value}`. Prompts and resource templates are asked for as the
    protocol says; those that are not ours are left to the server behind `call_next`.

    Raises MCPError for a tool that is not there, and for params of neither form.
    """
    from .answer import answer

    return await answer(ctx, call_next, access, find_tool)
