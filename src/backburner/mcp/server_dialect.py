"""What every dialect has on the server's side, and what the middleware asks of it.

A dialect is one protocol view of tasks. Its names, shapes and words for states are in its own room
(`dialects/<name>/wire.py`) and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from pydantic import BaseModel

from ..task import Answer
from ..tools import ToolSpec
from .progress_tokens import CallToken
from .request import RequestContext

#: Answers a request in place of the server, which it may ask by `call_next`.
Around = Callable[[RequestContext, CallNext], Awaitable[HandlerResult]]
#: Answers a request of a method that the dialect adds to the server.
Handler = Callable[[RequestContext, Any], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Method:
    """A method that a dialect adds: the model of its parameters, and who answers."""

    params: type[BaseModel]
    handler: Handler


@dataclass(frozen=True)
class OwnTool:
    """A tool that a dialect adds to the server's list, as it is listed, and who answers its calls.

    As long as it is not `offered`, it is as if it were not there; so it is always for a client it is not for.
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
    """A call of a slow tool that is being answered.

    `answers` are the client's to the tool's first questions, where they were put before the task began.
    """

    ctx: RequestContext
    spec: ToolSpec
    token: CallToken
    answers: Mapping[str, Answer] = field(default_factory=dict)
    came_at: float = field(default_factory=time.monotonic)

    @property
    def waited_s(self) -> float:
        """How long its client has waited."""
        return time.monotonic() - self.came_at


class ServerDialect:
    """A dialect's server half. The middleware asks the dialects in turn: is this yours?

    Each method here is the answer of one that has nothing to say to it.
    """

    def methods(self) -> Mapping[str, Method]:
        """The methods that it adds to the server. One that several add goes to the first that `speaks`."""
        return {}

    def around(self) -> Mapping[str, Around]:
        """The server's own methods to whose answers it has something to add."""
        return {}

    def own_tools(self) -> Mapping[str, OwnTool]:
        """The tools that it adds to the server, by name."""
        return {}

    def speaks(self, ctx: RequestContext) -> bool:
        """Whether a request for one of its methods is of its revision of the protocol."""
        return True

    def announce(self, capabilities: dict[str, Any], version: str) -> None:
        """Put what it offers into the server's capabilities, for a client of that protocol version."""

    def describe(self, ctx: RequestContext, spec: ToolSpec, tool: dict[str, Any]) -> dict[str, Any]:
        """A slow tool as it is listed, with what its clients must know of it."""
        return tool

    def refuse(self, ctx: RequestContext, tool_name: Any) -> None:
        """Raise MCPError for a call of a tool that is not slow, if it asks for what only slow ones have."""

    def takes(self, ctx: RequestContext, spec: ToolSpec) -> bool:
        """Whether a call of a slow tool is its to answer. Raises MCPError for one that cannot be answered."""
        return False

    def needs_no_stream(self, method: str, params: Mapping[str, Any], spec: ToolSpec | None) -> bool:
        """Whether it answers such a request of 2026-07-28 at once, with nothing to tell meanwhile.

        `spec` is the slow tool of a `tools/call`. The request has not been checked yet.
        """
        return False

    async def answer(self, call: SlowCall) -> dict[str, Any]:
        """The answer to a call that it takes. A BackburnerError becomes a result that a model can read."""
        raise AssertionError(f"{type(self).__name__} takes no calls")

    def wake(self) -> None:
        """The server is in use: begin what must go on in the background. Called with each request."""

    async def heard(self, ctx: RequestContext) -> None:
        """The client sent a notification."""
