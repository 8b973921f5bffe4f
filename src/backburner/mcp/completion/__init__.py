"""`completion/complete`: values for tool arguments and task ids.

The parts are imported on first use: few servers are asked, and JSON schema takes long to load.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND

from ...service.tasks import TaskService
from ...tools.spec import ToolSpec
from ..access import TaskAccess
from ..errors import jsonrpc_errors
from ..requests import RequestContext, owner_of_request, validate
from ..resources import SCHEME

if TYPE_CHECKING:
    from .proposals import Completion as Completion
    from .proposals import CompletionRequest as CompletionRequest
    from .proposals import complete as complete
    from .proposals import filter_completions as filter_completions
    from .proposals import generate_completions_from_schema as generate_completions_from_schema
    from .values import resolve_argument_reference as resolve_argument_reference
    from .values import resolve_context as resolve_context

logger = logging.getLogger(__name__)

_LAZY = {
    "Completion",
    "CompletionRequest",
    "complete",
    "filter_completions",
    "generate_completions_from_schema",
    "resolve_argument_reference",
    "resolve_context",
}
#: Number of the caller's latest calls whose arguments are offered again.
_HISTORY = 30

#: Returns the input schema of a tool, and its ToolSpec if it is slow; None for an unknown tool.
FindTool = Callable[[RequestContext, CallNext, str], Awaitable[tuple[Any, ToolSpec | None] | None]]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".proposals", __name__), name)


async def answer_completion(
    ctx: RequestContext, call_next: CallNext, access: TaskAccess, find_tool: FindTool
) -> dict[str, Any]:
    """Answer a `completion/complete` request.

    A tool's argument is requested by `{name, partial_argument, arguments, context}`, where
    `partial_argument` is text or `{name, value}`. Prompts and resource templates are requested as in the
    protocol; those of other resources are passed to the server behind `call_next`.

    Raises MCPError for an unknown tool and for invalid params.
    """
    from .proposals import Completion

    params, nothing = ctx.params or {}, Completion((), 0)
    if "ref" not in params and "name" in params:
        found = await find_tool(ctx, call_next, _text(params, "name"))
        if found is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params['name']}")
        return {"completion": (await _complete_argument(access, params, *found)).to_dict()}
    ref = params.get("ref")
    if isinstance(ref, Mapping) and str(ref.get("uri", "")).startswith(SCHEME):
        validate(ctx)
        argument = params["argument"]
        is_task = argument["name"] == "task_id"
        return {"completion": (await _task_ids(access, argument) if is_task else nothing).to_dict()}
    try:
        return dict(await call_next(ctx) or {})
    except MCPError as error:
        if error.error.code != METHOD_NOT_FOUND:
            raise
        return {"completion": nothing.to_dict()}


async def _complete_argument(
    access: TaskAccess, params: Mapping[str, Any], schema: Any, spec: ToolSpec | None
) -> Completion:
    """Return values for a tool's argument; slow tools also have history and suggestions."""
    from .proposals import CompletionRequest, complete

    arguments, context = _object(params, "arguments"), _object(params, "context")
    argument, partial = _typed_argument(params, arguments, schema)
    history: list[Any] = []
    suggested: list[Any] = []
    if spec is not None and argument is not None and argument not in spec.secrets:
        await access.ready()
        service, owner = access.service, owner_of_request()
        history = await service.aio.run(_earlier_values, service, owner, spec.name, argument)
        suggested = await _suggestions(service, spec, argument, partial, arguments, context)
    request = CompletionRequest(partial, argument, arguments, context, history, suggested)
    with jsonrpc_errors():
        # In a thread: schemas may be large.
        return await access.service.aio.run(complete, params["name"], request, schema)


async def _suggestions(
    service: TaskService,
    spec: ToolSpec,
    argument: str,
    partial: str,
    arguments: Mapping[str, Any],
    context: Mapping[str, Any],
) -> list[Any]:
    """Call the author's `suggest` function in a thread; return an empty list if it fails."""
    from .values import resolve_context

    suggest = spec.suggest.get(argument)
    if suggest is None:
        return []
    try:
        offered: Any = await service.aio.run(suggest, partial, arguments, resolve_context(arguments, context))
        return list(await offered if inspect.isawaitable(offered) else offered)
    except Exception:
        logger.exception("The suggest function for argument %s of tool %s failed", argument, spec.name)
        return []


async def _task_ids(access: TaskAccess, argument: Mapping[str, Any]) -> Completion:
    """Return the ids of the caller's own tasks, latest first."""
    from .proposals import Completion, filter_completions

    await access.ready()
    page = await access.service.aio.list(owner=owner_of_request(), limit=100)
    ids = filter_completions([task.task_id for task in page.tasks], argument["value"])
    return Completion(tuple(ids), len(ids))


def _earlier_values(service: TaskService, owner: str, tool_name: str, argument: str) -> list[Any]:
    """Return the caller's earlier values of an argument, latest first."""
    tasks = service.list(owner=owner, tool_name=tool_name, limit=_HISTORY).tasks
    inputs = (service.status(task.task_id, owner=owner).task.inputs or {} for task in tasks)
    return [given[argument] for given in inputs if given.get(argument) is not None]


def _typed_argument(
    params: Mapping[str, Any], arguments: Mapping[str, Any], schema: Any
) -> tuple[str | None, str]:
    """Return the name of the argument being typed, and the typed text."""
    from .proposals import argument_to_complete

    partial = params.get("partial_argument", "")
    if isinstance(partial, Mapping):
        return _text(partial, "name"), _text(partial, "value")
    if not isinstance(partial, str):
        raise MCPError(INVALID_PARAMS, "partial_argument must be text, or an object with name and value")
    return argument_to_complete(partial, arguments, schema), partial


def _text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key, "")
    if not isinstance(value, str):
        raise MCPError(INVALID_PARAMS, f"{key} must be text")
    return value


def _object(params: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = params.get(key) or {}
    if not isinstance(value, Mapping):
        raise MCPError(INVALID_PARAMS, f"{key} must be an object")
    return value
