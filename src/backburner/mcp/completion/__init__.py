"""`completion/complete`: what a caller could write for an argument.

Servers come in by `answer_completion`; programs may use the functions by themselves, which are pure. What
they are made of is imported when it is first needed, since few servers are ever asked and JSON schema
takes long to load.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext

from ...tools import ToolSpec
from ..access import TaskAccess
from ..request import RequestContext

if TYPE_CHECKING:
    from .proposals import Completion as Completion
    from .proposals import CompletionRequest as CompletionRequest
    from .proposals import complete as complete
    from .proposals import filter_completions as filter_completions
    from .proposals import generate_completions_from_schema as generate_completions_from_schema
    from .references import resolve_argument_reference as resolve_argument_reference
    from .references import resolve_context as resolve_context

_HOMES = {
    "Completion": "proposals",
    "CompletionRequest": "proposals",
    "complete": "proposals",
    "filter_completions": "proposals",
    "generate_completions_from_schema": "proposals",
    "resolve_argument_reference": "references",
    "resolve_context": "references",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


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
