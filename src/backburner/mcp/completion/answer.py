"""`completion/complete`: for tools in a form of its own, and for the task resources in the standard one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.server.context import CallNext
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND

from ...service import TaskService
from ...tools import ToolSpec
from ..access import TaskAccess
from ..auth import owner_of_request
from ..jsonrpc_errors import jsonrpc_errors
from ..request import RequestContext, validate
from ..resources import SCHEME
from .proposals import Completion, CompletionRequest, argument_to_complete, complete, rank
from .references import resolve_context

logger = logging.getLogger(__name__)

#: How many of the caller's latest calls are looked at.
_HISTORY = 30
_NOTHING = Completion((), 0)

#: The schema of a tool's inputs, and its ToolSpec if it is slow; None when there is no such tool.
FindTool = Callable[[RequestContext, CallNext, str], Awaitable[tuple[Any, ToolSpec | None] | None]]


class Completing:
    """Answers `completion/complete`."""

    def __init__(self, access: TaskAccess, find_tool: FindTool) -> None:
        self._access = access
        self._find_tool = find_tool

    async def answer(self, ctx: RequestContext, call_next: CallNext) -> dict[str, Any]:
        """For a tool: `{name, partial_argument, arguments, context}`, where `partial_argument` is a text
        or `{name, value}`. For prompts and resource templates: as the protocol says.

        Raises MCPError for a tool that is not there, and for params of neither form.
        """
        params = ctx.params or {}
        if "ref" not in params and "name" in params:
            completion = await self._for_tool(ctx, call_next, params)
            return {"completion": completion.to_dict()}
        ref = params.get("ref")
        if isinstance(ref, Mapping) and str(ref.get("uri", "")).startswith(SCHEME):
            validate(ctx)
            return {"completion": (await self._for_task(params["argument"])).to_dict()}
        try:
            return dict(await call_next(ctx) or {})
        except MCPError as error:
            if error.error.code != METHOD_NOT_FOUND:
                raise
            return {"completion": _NOTHING.to_dict()}  # the server has no completions of its own

    # -- tools

    async def _for_tool(
        self, ctx: RequestContext, call_next: CallNext, params: Mapping[str, Any]
    ) -> Completion:
        name = _text(params, "name")
        arguments, context = _object(params, "arguments"), _object(params, "context")
        found = await self._find_tool(ctx, call_next, name)
        if found is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {name}")
        schema, spec = found
        argument, partial = _partial(params, arguments, schema)
        history: list[Any] = []
        suggested: list[Any] = []
        if spec is not None and argument is not None and argument not in spec.secrets:
            await self._access.ready()
            service, owner = self._access.service, owner_of_request()
            history = await service.aio.run(earlier_values, service, owner, name, argument)
            suggested = await self._suggested(spec, argument, partial, arguments, context)
        request = CompletionRequest(partial, argument, arguments, context, history, suggested)
        with jsonrpc_errors():
            return complete(request, schema)

    async def _suggested(
        self,
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
            offered: Any = await self._access.service.aio.run(
                suggest, partial, arguments, resolve_context(arguments, context)
            )
            return list(await offered if inspect.isawaitable(offered) else offered)
        except Exception:
            logger.exception("The suggestions for %s of %s failed", argument, spec.name)
            return []

    # -- resources

    async def _for_task(self, argument: Mapping[str, Any]) -> Completion:
        """The caller's own tasks, the latest first."""
        if argument["name"] != "task_id":
            return _NOTHING
        await self._access.ready()
        page = await self._access.service.aio.list(owner=owner_of_request(), limit=100)
        ids = rank([task.task_id for task in page.tasks], argument["value"])
        return Completion(tuple(ids), len(ids))


def earlier_values(service: TaskService, owner: str, tool_name: str, argument: str) -> list[Any]:
    """What the caller gave for an argument before, the latest first."""
    tasks = service.list(owner=owner, tool_name=tool_name, limit=_HISTORY).tasks
    inputs = (service.status(task.task_id, owner=owner).task.inputs or {} for task in tasks)
    return [given[argument] for given in inputs if given.get(argument) is not None]


def _partial(params: Mapping[str, Any], arguments: Mapping[str, Any], schema: Any) -> tuple[str | None, str]:
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
