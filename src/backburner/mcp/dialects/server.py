"""Server side of a dialect: the interface that the middleware uses.

A dialect is one protocol view of tasks. Its names, models and status words are in `dialects/<name>/wire.py`
only.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.server.context import CallNext, HandlerResult
from pydantic import BaseModel

from ...core.task import Answer
from ...service.tasks import TaskStatus
from ...tools.spec import ToolSpec
from ..progress import CallToken
from ..requests import RequestContext

#: Answers a request in place of the server, which it can call by `call_next`.
Interceptor = Callable[[RequestContext, CallNext], Awaitable[HandlerResult]]
#: Answers a method that the dialect adds to the server.
Handler = Callable[[RequestContext, Any], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Method:
    """A method that a dialect adds: parameter model and handler."""

    params: type[BaseModel]
    handler: Handler


@dataclass(frozen=True)
class AddedTool:
    """A tool that a dialect adds to the server's list, with its handler.

    It is hidden while `offered` is false, and from clients for which `is_for` is false.
    """

    name: str
    listed: dict[str, Any]
    answer: Callable[[RequestContext, dict[str, Any]], Awaitable[dict[str, Any]]]
    offered: Callable[[], bool] = lambda: True
    is_for: Callable[[RequestContext], bool] = lambda ctx: True

    @property
    def input_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self.listed["inputSchema"]
        return schema


@dataclass(frozen=True)
class SlowCall:
    """A call of a slow tool. `answers` are the client's answers to the tool's first questions."""

    ctx: RequestContext
    spec: ToolSpec
    token: CallToken
    answers: Mapping[str, Answer] = field(default_factory=dict)
    came_at: float = field(default_factory=time.monotonic)

    @property
    def waited_s(self) -> float:
        """Time since the call arrived."""
        return time.monotonic() - self.came_at


class CallHolder(Protocol):
    """Holds calls until their tasks end."""

    async def hold(
        self, call: SlowCall, status: TaskStatus, patience_s: float | None, *, quiet: bool = False
    ) -> dict[str, Any] | None:
        """Return the result of the call; None when the time is over.

        A `quiet` call gets no notifications, and None as soon as its task asks a question.
        """


class ServerDialect:
    """Server half of a dialect. The middleware asks the dialects in turn; the defaults decline."""

    def methods(self) -> Mapping[str, Method]:
        """Return the methods to add; one added by several goes to the first that `speaks`."""
        return {}

    def interceptors(self) -> Mapping[str, Interceptor]:
        """Return interceptors for the server's own methods."""
        return {}

    def added_tools(self) -> Mapping[str, AddedTool]:
        """Return the tools to add, by name."""
        return {}

    def speaks(self, ctx: RequestContext) -> bool:
        """Return whether a request for one of its methods is of its protocol revision."""
        return True

    def announce(self, capabilities: dict[str, Any], version: str) -> None:
        """Add to the server's capabilities for a client of that protocol version."""

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        """Return a listed slow tool with the dialect's additions."""
        return tool

    def on_list(self, ctx: RequestContext) -> None:
        """Note that a client lists the tools."""

    def refuse(self, ctx: RequestContext, tool_name: Any) -> None:
        """Raise MCPError if a call of a fast tool asks for a task."""

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        """Return whether it answers a call of a slow tool. Raises MCPError for an invalid call."""
        return False

    def needs_no_stream(self, method: str, params: Mapping[str, Any], spec: ToolSpec | None) -> bool:
        """Return whether it answers an unchecked 2026-07-28 request at once, without notifications.

        `spec` is the slow tool of a `tools/call`.
        """
        return False

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        """Answer a call that it takes. A BackburnerError becomes a result that a model can read."""
        raise AssertionError(f"{type(self).__name__} takes no calls")

    def wake(self) -> None:
        """Start background work; called once the server is in use."""

    async def on_notification(self, ctx: RequestContext) -> None:
        """Handle a notification of the client."""
