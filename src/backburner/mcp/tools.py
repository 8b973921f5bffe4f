"""Slow tools of a server: functions of the app, and the server's own tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeVar

from mcp.server.context import CallNext

from ..app import Backburner
from ..errors import ConfigError, ToolDefinitionError
from ..tools.spec import Run, ToolSpec, tool_options
from ..tools.targets import FOR_RUNNER
from .requests import RequestContext, as_dict, has_own_ui

log = logging.getLogger("backburner.mcp")

T = TypeVar("T")

#: Patterns of the server's slow tools: one, several, or patterns with options.
Slow = str | Sequence[str] | Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ServerTools:
    """A framework's knowledge of its tools.

    `run_of` returns the runner of a tool, `registered` the names registered so far, `marked` the tools that
    their author marked as slow with options, and `is_async` whether a tool is an `async def`.
    """

    run_of: Callable[[str], Run]
    registered: Callable[[], Awaitable[Set[str]]]
    marked: Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]
    is_async: Callable[[str], Awaitable[bool]]


class SlowTools:
    """The slow tools of one server; its own are learned from its list when first needed."""

    def __init__(self, app: Backburner, own: ServerTools, slow: Slow = ()) -> None:
        """Raises ToolDefinitionError and ConfigError."""
        self._app = app
        self._own = own
        self._patterns = _patterns(slow)
        # Cached: it is asked for each call, also of fast tools.
        self._options = lru_cache(maxsize=4096)(self._match)
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._learned_any = self._learned_all = False
        self._marked: Mapping[str, Mapping[str, Any]] | None = None
        self._at_start: Set[str] | None = None
        self._late: Set[str] = frozenset()
        self._refused: set[str] = set()
        self._runs = FOR_RUNNER.get()
        for pattern, options in self._patterns.items():
            self._check(pattern, options)
        app.tools.find_missing = self._find_missing

    def _check(self, pattern: str, options: Mapping[str, Any]) -> None:
        """Raise ToolDefinitionError or ConfigError for invalid options."""
        fields = tool_options(pattern, options)
        try:
            self._app.check_queue(ToolSpec("tool", self._own.run_of("tool"), **fields), pattern)
        except ToolDefinitionError as error:
            raise ToolDefinitionError(tool_name=pattern, reason=error.details["reason"]) from None

    async def begin(self) -> None:
        """Record the tools registered when serving starts: runners have the same."""
        if self._at_start is None:
            self._at_start, self._marked = await self._own.registered(), await self._own.marked()

    def known(self, name: Any) -> ToolSpec | None:
        """Return the slow tool of that name, if it is known."""
        return self._app.tools.get(name) if isinstance(name, str) and name in self._app.tools else None

    async def find(self, ctx: RequestContext, call_next: CallNext, name: Any) -> ToolSpec | None:
        """Return the slow tool of that name, after listing the server's tools if needed."""
        spec = self.known(name)
        if spec is None and self._may_be_slow(name) and not self._is_served_here(name):
            await self.learn(ctx, call_next)
            spec = self.known(name)
        return spec

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, if it was learned."""
        spec = self.known(name)
        return self._schemas.get(name) if spec is None else spec.input_schema

    # -- learning

    async def learn_all(self, ctx: RequestContext, call_next: CallNext) -> None:
        """List all tools once."""
        if not self._learned_all:
            await self.learn(ctx, call_next)

    async def learn(self, ctx: RequestContext, call_next: CallNext) -> list[dict[str, Any]]:
        """List the server's own tools."""
        params: dict[str, Any] = {"_meta": (ctx.params or {}).get("_meta") or {}}
        tools: list[dict[str, Any]] = []
        while True:
            result = as_dict(await call_next(replace(ctx, method="tools/list", params=params)))
            tools += result["tools"]
            await self.take_note(result)
            if not result.get("nextCursor"):
                return tools
            params = {**params, "cursor": result["nextCursor"]}

    async def take_note(self, result: Mapping[str, Any]) -> None:
        """Learn from a page of the server's list."""
        self._learned_any = True
        await self._look_for_late_ones()
        for tool in result["tools"]:
            name = tool["name"]
            self._schemas[name] = tool["inputSchema"]
            known = name in self._app.tools or self._is_served_here(name)
            if not known and self._may_be_slow(name):
                await self._add(name, tool)
        if not result.get("nextCursor"):
            if not self._learned_all:
                self._tell_unmatched()
            self._learned_all = True

    def _is_served_here(self, name: str) -> bool:
        """Return whether a matching tool is run by the server itself."""
        return name in self._late or name in self._refused

    async def _add(self, name: str, tool: Mapping[str, Any]) -> None:
        """Add a listed tool. A tool that cannot be a task is logged and stays fast."""
        try:
            spec = self._spec(
                name,
                description=tool.get("description") or "",
                title=tool.get("title") or "",
                input_schema=tool["inputSchema"],
                output_schema=tool.get("outputSchema"),
                is_async=await self._own.is_async(name),
                card=not has_own_ui(tool),
            )
            self._app.add_tool(spec)
        except Exception as error:
            self._refused.add(name)
            log.warning("%s is not run as a task: %s", name, error)

    def _tell_unmatched(self) -> None:
        """Warn about patterns that match no tool: usually a typo."""
        tools = self._app.tools
        tools.offered = tuple(self._schemas)
        tools.unmatched = tuple(
            pattern
            for pattern in self._patterns
            if not any(fnmatchcase(name, pattern) for name in tools.offered)
        )
        for pattern in () if self._app.quiet else tools.unmatched:
            known = ", ".join(tools.offered) or "it has none"
            log.warning("slow=%r matches none of the tools of %s: %s", pattern, self._app.name, known)

    async def _look_for_late_ones(self) -> None:
        """Find tools registered after the start: only this process has them, so they stay fast."""
        if self._at_start is None:
            return
        late = await self._own.registered() - self._at_start
        for name in filter(self._may_be_slow, late - self._late):
            log.warning("%s is not run as a task: it was registered after the server started", name)
        self._late = late

    # -- by name alone

    def _may_be_slow(self, name: Any) -> bool:
        return isinstance(name, str) and self._options_of(name) is not None

    def _options_of(self, name: str) -> Mapping[str, Any] | None:
        options = self._options(name)
        return (self._marked or {}).get(name) if options is None else options

    def _match(self, name: str) -> Mapping[str, Any] | None:
        for pattern, options in self._patterns.items():
            if fnmatchcase(name, pattern):
                return options
        return None

    def _find_missing(self, name: str) -> ToolSpec | None:
        """Return the tool for a runner, which knows only its name."""
        if self._learned_any:
            return None
        if self._marked is None and not self._may_be_slow(name):
            self._marked = _result_of(self._own.marked())
        if not self._may_be_slow(name):
            return None
        # A runner has the task already and does not need its queue.
        return self._spec(name, is_async=not self._runs and _result_of(self._own.is_async(name)))

    def _spec(self, name: str, **described: Any) -> ToolSpec:
        options = tool_options(name, self._options_of(name) or {})
        return ToolSpec(
            name, self._own.run_of(name), result_kind="call_tool_result", **{**described, **options}
        )


def _patterns(slow: Any) -> dict[str, Mapping[str, Any]]:
    """Return each pattern with its options. Raises ConfigError."""
    if isinstance(slow, str):
        return {slow: {}}
    patterns = [*slow] if isinstance(slow, Iterable) else [slow]
    wrong = [one for one in patterns if not isinstance(one, str)]
    if isinstance(slow, Mapping):
        wrong += [options for options in slow.values() if not isinstance(options, Mapping)]
    if wrong:
        reason = f'{wrong[0]!r} does not fit; write for example ["work"], or {{"work": {{"timeout": "4h"}}}}'
        raise ConfigError(setting="slow", reason=reason)
    return dict(slow) if isinstance(slow, Mapping) else {pattern: {} for pattern in patterns}


def _result_of(awaited: Awaitable[T]) -> T:
    """Run an awaitable from sync code, in a thread: this one may have a running loop."""

    async def result() -> T:
        return await awaited

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, result()).result()
