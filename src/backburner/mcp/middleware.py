"""The one middleware that serves every surface, on both protocol generations and all transports.

It stands in `Server.middleware` of the official SDK. What it returns goes to the client as it is,
while the results of handlers are sieved through the wire models of their protocol version; so
what those models do not know (`resultType: "task"`, `capabilities.tasks`, …) is added here.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from mcp.server.context import CallNext, HandlerResult
from pydantic import BaseModel

from ..app import Backburner
from ..errors import BackburnerError
from ..tools import ToolSpec
from .access import TaskAccess, validate
from .completion.answer import Completing
from .dialects.task_id.server import TaskIdCalls, given_task_id
from .dialects.task_tools.server import TaskTools
from .dialects.tasks_2025.server import CAPABILITY, ListParams, Tasks2025
from .dialects.tasks_2026.server import TaskIdParams, Tasks2026, UpdateParams
from .dialects.two_stage.announcing import POLL, PollParams, Stages
from .dialects.two_stage.server import HANDLE_SCHEMA, PlainCalls, client_patience_s, require_elicitation
from .mapping import mcp_error
from .outcomes import refusal
from .progress_tokens import CallToken, ProgressTokens
from .request import (
    TASKS_2025,
    TASKS_EXTENSION,
    RequestContext,
    Way,
    choose_way,
    is_modern,
    request_meta,
    task_not_supported,
)
from .resources import SCHEME, TEMPLATES, TaskResources

#: Set in a runner, where the server's own pipeline runs the tool and the surfaces must step aside.
IN_RUNNER: contextvars.ContextVar[bool] = contextvars.ContextVar("backburner_in_runner", default=False)

Handle = Callable[[RequestContext, CallNext], Awaitable[HandlerResult]]
_NOT_YET = frozenset({"initialize", "server/discover", "ping"})


class SlowTools(Protocol):
    """Which of the server's tools are slow, as the adapter knows it."""

    def find(self, name: Any) -> ToolSpec | None:
        """The slow tool of that name, if it is known already."""
        ...

    def may_be(self, name: Any) -> bool:
        """Whether a tool of that name, not known yet, would be slow."""
        ...

    def learn(self, listed: list[dict[str, Any]]) -> None:
        """Take note of the server's own tools, as it lists them."""
        ...


class Surfaces:
    """A `ServerMiddleware`. One instance serves all sessions of a server."""

    def __init__(self, app: Backburner, slow_tools: SlowTools) -> None:
        self.access = TaskAccess(app)
        self.slow_tools = slow_tools
        self.task_tools = TaskTools(self.access)
        self.tasks_2026 = Tasks2026(self.access)
        self.tasks_2025 = Tasks2025(self.access)
        self.tokens = ProgressTokens(silence_s=app.settings.progress_silence_s)
        self.stages = Stages(self.access, self.tokens)
        self.plain_calls = PlainCalls(self.access, self.tokens, self.stages)
        self.task_ids = TaskIdCalls(self.access)
        self.completing = Completing(self.access, self._find_tool)
        self.resources = TaskResources(self.access)
        self._learned = False
        self._handles: dict[str, Handle] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "completion/complete": self._complete_argument,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "subscriptions/listen": self.tasks_2026.listen,
        }

    def methods(self) -> list[tuple[str, type[BaseModel], Any]]:
        """The methods to bind on the server: name, parameters, handler."""
        return [
            ("tasks/get", TaskIdParams, self._get_task),
            ("tasks/update", UpdateParams, self.tasks_2026.update),
            ("tasks/cancel", TaskIdParams, self._cancel_task),
            ("tasks/result", TaskIdParams, self.tasks_2025.result),
            ("tasks/list", ListParams, self.tasks_2025.list),
            (POLL, PollParams, self.stages.poll),
        ]

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if IN_RUNNER.get():
            return await call_next(ctx)
        if ctx.request_id is None:
            if ctx.method == "notifications/cancelled":
                await self.plain_calls.cancelled(ctx)
            return await call_next(ctx)
        if ctx.method not in _NOT_YET:
            self.access.wake()
            self.task_ids.start()
        handle = self._handles.get(ctx.method)
        return await (call_next(ctx) if handle is None else handle(ctx, call_next))

    # -- what the server says about itself

    async def _initialize(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = _dumped(await call_next(ctx))
        result["capabilities"] = {"completions": {}, **(result.get("capabilities") or {})}
        if result.get("protocolVersion") == TASKS_2025:
            result["capabilities"]["tasks"] = CAPABILITY
        return result

    async def _discover(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = _dumped(await call_next(ctx))
        capabilities = {"completions": {}, **(result.get("capabilities") or {})}
        # Exactly `{}`: a client takes anything else for another dialect of the extension.
        capabilities["extensions"] = {**(capabilities.get("extensions") or {}), TASKS_EXTENSION: {}}
        return {**result, "capabilities": capabilities}

    async def _list_tools(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = _dumped(await call_next(ctx))
        self.slow_tools.learn(result["tools"])
        tools = [self._listed(ctx, tool) for tool in result["tools"]]
        if not result.get("nextCursor"):
            # The server's own tools come first, since some clients try the first tool of a list.
            own = (spec for spec in self.access.app.tools if spec.result_kind == "value")
            tools += (self._listed(ctx, _listed_function(spec)) for spec in own)
            tools += (tool.listed() for tool in self.task_tools.by_name.values())
            self._learned = True
        return {**result, "tools": tools}

    def _listed(self, ctx: RequestContext, tool: dict[str, Any]) -> dict[str, Any]:
        spec = self.slow_tools.find(tool["name"])
        if spec is None:
            return tool
        if ctx.protocol_version == TASKS_2025:
            support = "forbidden" if spec.task == "never" else spec.task
            tool = {**tool, "execution": {**(tool.get("execution") or {}), "taskSupport": support}}
        if spec.answer != "hold" and spec.task != "never":
            # In `_meta` too, because typed clients drop what they do not know.
            tool = {**tool, "async": True, "_meta": {**(tool.get("_meta") or {}), "async": True}}
        if tool.get("outputSchema") and spec.answer != "hold" and spec.task == "optional":
            tool = {**tool, "outputSchema": _or_handle(tool["outputSchema"])}
        return tool

    # -- tools

    async def _call_tool(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Any tool call: tracked while it is in flight, and its result says by which token and how long."""
        started = time.monotonic()
        key, given = self.tokens.generate_token(), request_meta(ctx).get("progressToken")
        token = CallToken(key, given if isinstance(given, str | int) else key)
        self.tokens.track(key, str((ctx.params or {}).get("name")), shown=token.shown)
        try:
            result = await self._answer_call(ctx, call_next, token)
        finally:
            self.tokens.cleanup_completed(key)
        if isinstance(result, dict) and "content" in result:
            took = {"progressToken": token.shown, "duration": int((time.monotonic() - started) * 1000)}
            return {**result, "_meta": {**(result.get("_meta") or {}), **took}}
        return result

    async def _answer_call(self, ctx: RequestContext, call_next: CallNext, token: CallToken) -> HandlerResult:
        params = ctx.params or {}
        name = params.get("name")
        if isinstance(name, str) and name in self.task_tools.by_name:
            validate(ctx)
            if not self._learned:
                await self._learn(ctx, call_next)
            patience_s = client_patience_s(ctx, self.access.settings)
            return _complete(ctx, await self.task_tools.call(name, params.get("arguments") or {}, patience_s))
        spec = await self._slow_tool(ctx, call_next, name)
        if spec is not None:
            return await self._call_slow_tool(ctx, spec, token)
        if ctx.protocol_version == TASKS_2025 and params.get("task") is not None:
            raise task_not_supported(name)
        return await call_next(ctx)

    async def _slow_tool(self, ctx: RequestContext, call_next: CallNext, name: Any) -> ToolSpec | None:
        spec = self.slow_tools.find(name)
        if spec is None and self.slow_tools.may_be(name):
            await self._learn(ctx, call_next)
            spec = self.slow_tools.find(name)
        return spec

    async def _find_tool(
        self, ctx: RequestContext, call_next: CallNext, name: str
    ) -> tuple[Any, ToolSpec | None] | None:
        """The input schema of any tool that the server lists, and its spec if it is a slow one."""
        if name in self.task_tools.by_name:
            return self.task_tools.by_name[name].input_schema, None
        spec = await self._slow_tool(ctx, call_next, name)
        if spec is not None:
            return spec.input_schema, spec
        tools = await self._learn(ctx, call_next)
        return next(((tool["inputSchema"], None) for tool in tools if tool["name"] == name), None)

    async def _complete_argument(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        return _complete(ctx, await self.completing.answer(ctx, call_next))

    async def _learn(self, ctx: RequestContext, call_next: CallNext) -> list[dict[str, Any]]:
        """List the server's own tools, to know which of them are slow."""
        params: dict[str, Any] = {"_meta": (ctx.params or {}).get("_meta") or {}}
        tools: list[dict[str, Any]] = []
        while True:
            result = _dumped(await call_next(replace(ctx, method="tools/list", params=params)))
            tools += result["tools"]
            self.slow_tools.learn(result["tools"])
            if not result.get("nextCursor"):
                self._learned = True
                return tools
            params = {**params, "cursor": result["nextCursor"]}

    async def _call_slow_tool(self, ctx: RequestContext, spec: ToolSpec, token: CallToken) -> HandlerResult:
        validate(ctx)
        way = Way.PLAIN if spec.requires_task_id else choose_way(ctx, spec)
        task_id = given_task_id(ctx, spec) if way is Way.PLAIN else None
        if way is Way.TASK_2025:
            return await self.tasks_2025.create(ctx, spec)
        try:
            answers: dict[str, Any] = {}
            if (
                spec.ask_first is not None
                and is_modern(ctx)
                and (ctx.params or {}).get("requestState") is None
            ):
                requests, answers = await self.access.answers_first(ctx, spec)
                if requests:
                    require_elicitation(ctx)
                    return {"resultType": "input_required", "inputRequests": requests}
            if way is Way.TASK_2026:
                resumed = await self.plain_calls.resumed(ctx, spec)
                return await self.tasks_2026.create(ctx, spec, answers, resumed)
            if task_id is not None:
                return _complete(ctx, await self.task_ids.answer(ctx, spec, task_id, answers))
            return _complete(ctx, await self.plain_calls.answer(ctx, spec, answers, token))
        except BackburnerError as error:
            return _complete(ctx, refusal(error))

    # -- tasks, where both generations have a method of that name

    async def _get_task(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        surface = self.tasks_2026 if is_modern(ctx) else self.tasks_2025
        return await surface.get(ctx, params)

    async def _cancel_task(self, ctx: RequestContext, params: TaskIdParams) -> dict[str, Any]:
        surface = self.tasks_2026 if is_modern(ctx) else self.tasks_2025
        return await surface.cancel(ctx, params)

    # -- resources

    async def _list_templates(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = _dumped(await call_next(ctx))
        if result.get("nextCursor"):
            return result
        return {**result, "resourceTemplates": [*result["resourceTemplates"], *TEMPLATES]}

    async def _read_resource(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        uri = (ctx.params or {}).get("uri")
        if not isinstance(uri, str) or not uri.startswith(SCHEME):
            return await call_next(ctx)
        validate(ctx)
        try:
            result = await self.resources.read(uri)
        except BackburnerError as error:
            raise mcp_error(error) from error
        if is_modern(ctx):
            result |= {"ttlMs": 0, "cacheScope": "private"}
        return _complete(ctx, result)


def _complete(ctx: RequestContext, result: dict[str, Any]) -> dict[str, Any]:
    """At 2026-07-28 every result says what kind it is."""
    return {"resultType": "complete", **result} if is_modern(ctx) else result


def _dumped(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(result or {})


def _listed_function(spec: ToolSpec) -> dict[str, Any]:
    tool = {"name": spec.name, "description": spec.description, "inputSchema": spec.input_schema}
    return tool if spec.output_schema is None else {**tool, "outputSchema": spec.output_schema}


def _or_handle(schema: dict[str, Any]) -> dict[str, Any]:
    """An output schema that also admits the handle, which a client without tasks may get instead."""
    own = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "$schema") if key in schema}
    return {**shared, "type": "object", "anyOf": [own, HANDLE_SCHEMA]}
