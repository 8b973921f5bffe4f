"""The middleware that serves every dialect on both protocol generations and all transports."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.jsonrpc import METHOD_NOT_FOUND
from pydantic import BaseModel, ValidationError

from ..app import Backburner
from ..errors import BackburnerError
from ..tools.results import MCPResult
from ..tools.spec import ToolSpec
from .access import TaskAccess, tool_call_span
from .card.server import TaskCard
from .completion import answer_completion
from .dialects.server import AddedTool, Handler, Interceptor, Method, ServerDialect, SlowCall
from .dialects.task_id.server import TaskId
from .dialects.task_tools.server import TaskTools
from .dialects.tasks_2025.server import Tasks2025
from .dialects.tasks_2026.server import Tasks2026
from .dialects.two_stage.server import TwoStage
from .errors import internal_error, mcp_error
from .notifications import REQUEST, note_level
from .progress import CallToken, ProgressTokens
from .questions import InputRounds
from .requests import (
    RequestContext,
    arguments_of,
    as_dict,
    client_of,
    completed,
    is_followup_round,
    is_modern,
    is_traced,
    request_meta,
    validate,
)
from .resources import TaskResources
from .results import CLIENT, Client, error_as_result
from .tools import SlowTools

#: Set in a runner, where the server's own pipeline runs the tool without dialects.
IN_RUNNER: contextvars.ContextVar[bool] = contextvars.ContextVar("backburner_in_runner", default=False)

#: Keys in the `_meta` of a result that describe the call.
_OF_A_CALL = ("progressToken", "duration")
CALL = "tools/call"
#: A progress token that has been silent this long is forgotten.
_TOKEN_SILENCE_S = 30.0
_NOT_YET = frozenset({"initialize", "server/discover", "ping"})


class TaskMiddleware:
    """A `ServerMiddleware`; one instance serves all sessions of a server."""

    def __init__(self, app: Backburner, slow_tools: SlowTools, server_info: Callable[[], Any]) -> None:
        """`server_info` returns the server information that clients get."""
        self._access = TaskAccess(app)
        self._server_info = server_info
        self._slow_tools = slow_tools
        self._awake = False
        self._tokens = ProgressTokens(silence_s=_TOKEN_SILENCE_S)
        self._rounds = InputRounds(self._access)
        self._dialects = server_dialects(self._access, self._rounds, self._tokens)
        self._own_tools: Mapping[str, AddedTool] = {
            name: tool for dialect in self._dialects for name, tool in dialect.added_tools().items()
        }
        self._interceptors: Mapping[str, Interceptor] = {
            "initialize": self._announce,
            "server/discover": self._announce,
            "tools/list": self._list_tools,
            CALL: self._call_tool,
            "completion/complete": self._complete_argument,
            "logging/setLevel": _set_level,
            **_nested(TaskResources(self._access), *self._dialects),
        }

    @property
    def added_tools(self) -> Mapping[str, AddedTool]:
        """Tools that the dialects add to the server's now, by name."""
        return {name: tool for name, tool in self._own_tools.items() if tool.offered()}

    def methods(self) -> Iterator[tuple[str, type[BaseModel], Handler]]:
        """Yield the methods to bind on the server: name, parameter model and handler."""
        spoken: dict[str, list[tuple[Any, Method]]] = {}
        for dialect in self._dialects:
            for name, method in dialect.methods().items():
                spoken.setdefault(name, []).append((dialect, method))
        for name, ways in spoken.items():
            yield name, ways[0][1].params, partial(self._in_the_dialect_that_speaks, ways)

    def is_slow(self, tool_name: Any) -> bool:
        """Return whether the tool is known to be slow."""
        return self._slow_tools.known(tool_name) is not None

    def needs_no_stream(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether an unchecked 2026-07-28 request is answered at once, without notifications."""
        spec = self._slow_tools.known(params.get("name")) if method == CALL else None
        return (spec is not None or method != CALL) and any(
            dialect.needs_no_stream(method, params, spec) for dialect in self._dialects
        )

    async def _in_the_dialect_that_speaks(
        self, ways: list[tuple[Any, Method]], ctx: RequestContext, params: Any
    ) -> dict[str, Any]:
        for dialect, method in ways:
            if dialect.speaks(ctx):
                with _answering(ctx):
                    return await method.handler(ctx, params)
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if IN_RUNNER.get():
            return await call_next(ctx)
        CLIENT.set(Client(*client_of(ctx), over_http=ctx.request is not None))
        REQUEST.set(ctx)
        if ctx.request_id is None:
            for dialect in self._dialects:
                await dialect.on_notification(ctx)
            return await call_next(ctx)
        if not self._awake and ctx.method not in _NOT_YET:
            self._wake()
        interceptors = self._interceptors.get(ctx.method)
        if interceptors is None:
            return await call_next(ctx)
        with _answering(ctx) as theirs:
            return self._signed(ctx, await interceptors(ctx, _noting(call_next, theirs)))

    def _signed(self, ctx: RequestContext, result: HandlerResult) -> HandlerResult:
        """Add the server info that 2026-07-28 requires; the SDK adds it to results of its own handlers."""
        if not is_modern(ctx) or not isinstance(result, dict):
            return result
        return {**result, "_meta": {SERVER_INFO_META_KEY: self._server_info(), **(result.get("_meta") or {})}}

    def _wake(self) -> None:
        """Open the store and start background work."""
        self._awake = True
        self._access.wake()
        for dialect in self._dialects:
            dialect.wake()

    # -- server information

    async def _announce(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        result = as_dict(await call_next(ctx))
        capabilities = {"completions": {}, **(result.get("capabilities") or {})}
        for dialect in self._dialects:
            dialect.announce(capabilities, str(result.get("protocolVersion") or ctx.protocol_version))
        self._access.chat.announce(capabilities)
        return {**result, "capabilities": capabilities}

    async def _list_tools(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        for dialect in self._dialects:
            dialect.on_list(ctx)
        result = as_dict(await call_next(ctx))
        await self._slow_tools.take_note(result)
        tools = [self._described(ctx, tool) for tool in result["tools"]]
        if not result.get("nextCursor"):
            # The server's own tools come first, since some clients try the first tool of a list.
            functions = (spec for spec in self._access.app.tools if spec.result_kind == "value")
            tools += (self._described(ctx, _listed_function(spec)) for spec in functions)
            tools += (tool.listed for tool in self.added_tools.values() if tool.is_for(ctx))
        return {**result, "tools": tools}

    def _described(self, ctx: RequestContext, tool: dict[str, Any]) -> dict[str, Any]:
        spec = self._slow_tools.known(tool["name"])
        if spec is not None:
            for dialect in self._dialects:
                tool = dialect.describe(ctx, spec, tool)
        return tool

    # -- calls

    async def _call_tool(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Answer any tool call and track it while in flight; `_meta` gets its token and duration.

        A task's result carries the run time of its tool instead.
        """
        started = time.monotonic()
        token = CallToken.of(self._tokens.generate_token(), request_meta(ctx).get("progressToken"))
        name = str((ctx.params or {}).get("name"))
        self._tokens.track_tool_call(token.key, name, shown=token.shown, in_progress=True)
        try:
            result = await self._answer_call(ctx, call_next, token, started)
        finally:
            self._tokens.cleanup_completed(token.key)
        if isinstance(result, dict) and "content" in result:
            meta = {"progressToken": token.shown, "duration": int((time.monotonic() - started) * 1000)}
            meta |= result.get("_meta") or {}
            return {
                **_at_the_top(result),
                **result,
                "_meta": meta if token.given is None else {**meta, "progressToken": token.given},
            }
        return result

    async def _answer_call(
        self, ctx: RequestContext, call_next: CallNext, token: CallToken, came_at: float
    ) -> HandlerResult:
        name = (ctx.params or {}).get("name")
        own = self._own_tools.get(name) if isinstance(name, str) else None
        if own is not None and own.is_for(ctx):
            await self._slow_tools.learn_all(ctx, call_next)
            if own.offered():
                validate(ctx)
                return completed(ctx, await own.answer(ctx, arguments_of(ctx)))
        spec = await self._slow_tools.find(ctx, call_next, name)
        if spec is not None:
            validate(ctx)
            with tool_call_span(ctx, spec.name) if is_traced() else nullcontext():
                return completed(ctx, await self._answer_slow_call(ctx, spec, token, came_at))
        for dialect in self._dialects:
            dialect.refuse(ctx, name)
        return _about_this_call(await call_next(ctx))

    async def _answer_slow_call(
        self, ctx: RequestContext, spec: ToolSpec, token: CallToken, came_at: float
    ) -> dict[str, Any]:
        dialect = next(dialect for dialect in self._dialects if dialect.takes(ctx, spec))
        try:
            if spec.ask_first is None or is_followup_round(ctx):
                return await dialect.answer(SlowCall(ctx, spec, token, came_at=came_at))
            asking, answers = await self._rounds.ask_first(ctx, spec)
            return asking or await dialect.answer(SlowCall(ctx, spec, token, answers, came_at))
        except BackburnerError as error:
            return error_as_result(error, typed=spec.output_schema is not None)

    # -- completion

    async def _complete_argument(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        return completed(ctx, await answer_completion(ctx, call_next, self._access, self._find_tool))

    async def _find_tool(
        self, ctx: RequestContext, call_next: CallNext, name: str
    ) -> tuple[Any, ToolSpec | None] | None:
        """Return the input schema of a listed tool, and its spec if it is slow."""
        if name in self.added_tools:
            return self.added_tools[name].input_schema, None
        spec = await self._slow_tools.find(ctx, call_next, name)
        if spec is not None:
            return spec.input_schema, spec
        tools = await self._slow_tools.learn(ctx, call_next)
        return next(((tool["inputSchema"], None) for tool in tools if tool["name"] == name), None)


async def _set_level(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
    result = await call_next(ctx)
    note_level(ctx)  # only for servers that support levels
    return result


def _at_the_top(result: dict[str, Any]) -> dict[str, Any]:
    """Return the MCPResult fields of a tool result, which also go to its top level."""
    said = MCPResult.in_tool_result(result)
    return {} if said is None else said.to_dict()


def _about_this_call(result: HandlerResult) -> HandlerResult:
    """Remove call metadata that a wrapped server put into a fast tool's result."""
    if not isinstance(result, dict) or not result.get("_meta"):
        return result
    others = {key: value for key, value in result["_meta"].items() if key not in _OF_A_CALL}
    return {**result, "_meta": others}


def _nested(*parts: TaskResources | ServerDialect) -> dict[str, Interceptor]:
    """Combine interceptors by method; later ones wrap earlier ones."""
    nested: dict[str, Interceptor] = {}
    for part in parts:
        for method, interceptors in part.interceptors().items():
            nested[method] = _before(interceptors, nested[method]) if method in nested else interceptors
    return nested


def _before(outer: Interceptor, inner: Interceptor) -> Interceptor:
    async def answer(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        return await outer(ctx, lambda asked: inner(asked, call_next))

    return answer


def _noting(call_next: CallNext, theirs: list[Exception]) -> CallNext:
    """Wrap `call_next` to record its exceptions, which are the server's own."""

    async def call(ctx: RequestContext) -> HandlerResult:
        try:
            return await call_next(ctx)
        except Exception as error:
            theirs.append(error)
            raise

    return call


@contextmanager
def _answering(ctx: RequestContext) -> Iterator[list[Exception]]:
    """Convert exceptions raised in the block to JSON-RPC errors, except recorded ones."""
    theirs: list[Exception] = []
    try:
        yield theirs
    except (MCPError, ValidationError):
        raise
    except BackburnerError as error:
        raise mcp_error(error) from error
    except Exception as error:
        if error in theirs:
            raise
        raise internal_error(error, ctx.method) from error


def _listed_function(spec: ToolSpec) -> dict[str, Any]:
    tool = {"name": spec.name, "description": spec.description, "inputSchema": spec.input_schema}
    hints = {
        "title": spec.title or None,
        "readOnlyHint": spec.read_only,
        "destructiveHint": spec.destructive,
        "idempotentHint": spec.idempotent,
        "openWorldHint": spec.open_world,
    }
    annotations = {key: value for key, value in hints.items() if value is not None}
    known = {"title": hints["title"], "outputSchema": spec.output_schema, "annotations": annotations or None}
    return tool | {key: value for key, value in known.items() if value is not None}


def server_dialects(
    access: TaskAccess, rounds: InputRounds, tokens: ProgressTokens
) -> tuple[ServerDialect, ...]:
    two_stage = TwoStage(access, rounds, tokens)
    of_their_own = Tasks2026(access, rounds, two_stage.holder), Tasks2025(access), TaskId(access)
    return (
        *of_their_own,
        two_stage,
        TaskTools(access),
        TaskCard(access, of_their_own),
    )
