"""`completion/complete`: for tools in a form of its own, and for the task resources in the standard one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

from mcp.server.context import CallNext
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND

from ...service import TaskService
from ...tools import ToolSpec
from ..access import TaskAccess
from ..jsonrpc_errors import jsonrpc_errors
from ..request import RequestContext, owner_of_request, validate
from ..resources import SCHEME
from . import FindTool
from .proposals import Completion, CompletionRequest, argument_to_complete, complete, filter_completions
from .references import resolve_context

logger = logging.getLogger(__name__)

#: How many of the caller's latest calls are looked at.
_HISTORY = 30
_NOTHING = Completion((), 0)


async def answer(
    ctx: RequestContext, call_next: CallNext, access: TaskAccess, find_tool: FindTool
) -> dict[str, Any]:
    """What `answer_completion` promises."""
    params = ctx.params or {}
    if "ref" not in params and "name" in params:
        found = await find_tool(ctx, call_next, _text(params, "name"))
        if found is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params['name']}")
        return {"completion": (await _for_tool(access, params, *found)).to_dict()}
    ref = params.get("ref")
    if isinstance(ref, Mapping) and str(ref.get("uri", "")).startswith(SCHEME):
        validate(ctx)
        return {"completion": (await _for_task(access, params["argument"])).to_dict()}
    try:
        return dict(await call_next(ctx) or {})
    except MCPError as error:
        if error.error.code != METHOD_NOT_FOUND:
            raise
        return {"completion": _NOTHING.to_dict()}  # the server has no completions of its own


async def _for_tool(
    access: TaskAccess, params: Mapping[str, Any], schema: Any, spec: ToolSpec | None
) -> Completion:
    """Values for a tool's argument. Earlier values and suggestions are there for slow tools only."""
    arguments, context = _object(params, "arguments"), _object(params, "context")
    argument, partial = _typed_argument(params, arguments, schema)
    history: list[Any] = []
    suggested: list[Any] = []
    if spec is not None and argument is not None and argument not in spec.secrets:
        await access.ready()
        service, owner = access.service, owner_of_request()
        history = await service.aio.run(_earlier_values, service, owner, spec.name, argument)
        suggested = await _suggested(service, spec, argument, partial, arguments, context)
    request = CompletionRequest(partial, argument, arguments, context, history, suggested)
    with jsonrpc_errors():
        # Schemas may be large and values many, so not on the event loop.
        return await access.service.aio.run(complete, params["name"], request, schema)


async def _suggested(
    service: TaskService,
    spec: ToolSpec,
    argument: str,
    partial: str,
    arguments: Mapping[str, Any],
    context: Mapping[str, Any],
) -> list[Any]:
    """What the author offers, off the event loop; nothing when that fails."""
    suggest = spec.suggest.get(argument)
    if suggest is None:
        return []
    try:
        offered: Any = await service.aio.run(suggest, partial, arguments, resolve_context(arguments, context))
        return list(await offered if inspect.isawaitable(offered) else offered)
    except Exception:
        logger.exception("The suggestions for %s of %s failed", argument, spec.name)
        return []


async def _for_task(access: TaskAccess, argument: Mapping[str, Any]) -> Completion:
    """The ids of the caller's own tasks, the latest first."""
    if argument["name"] != "task_id":
        return _NOTHING
    await access.ready()
    page = await access.service.aio.list(owner=owner_of_request(), limit=100)
    ids = filter_completions([task.task_id for task in page.tasks], argument["value"])
    return Completion(tuple(ids), len(ids))


def _earlier_values(service: TaskService, owner: str, tool_name: str, argument: str) -> list[Any]:
    """What the caller gave for an argument before, the latest first."""
    tasks = service.list(owner=owner, tool_name=tool_name, limit=_HISTORY).tasks
    inputs = (service.status(task.task_id, owner=owner).task.inputs or {} for task in tasks)
    return [given[argument] for given in inputs if given.get(argument) is not None]


def _typed_argument(
    params: Mapping[str, Any], arguments: Mapping[str, Any], schema: Any
) -> tuple[str | None, str]:
    """Which argument is being typed, and what has been typed of it."""
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
