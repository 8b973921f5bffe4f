"""What every dialect has on the client's side, and what a client and its handles ask of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import mcp_types as types

from .connection import Link
from .updates import Update

#: The core protocol's own news, by which servers tell of tasks too.
PROGRESS = "notifications/progress"


class Bell:
    """Rings when there may be news of a task. `trusted` while the server says that it will tell of all.

    `told` has what the server told by itself, oldest first, for whoever listens to take out.
    """

    def __init__(self, event: asyncio.Event, told: deque[Update] | None = None) -> None:
        self.event = event
        self.trusted = False
        self.told = deque[Update]() if told is None else told


class Conversation(Protocol):
    """How to ask about a task, and to steer it. Every method raises ConnectionLost and MCPError."""

    name: ClassVar[str]

    async def read(self, task_id: str) -> Update: ...

    async def result(self, task_id: str) -> types.CallToolResult:
        """The result of a finished task. Raises what a call itself would, and TaskWasCancelled."""
        ...

    async def cancel(self, task_id: str) -> None: ...

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None: ...

    def listening(self, task_id: str) -> contextlib.AbstractAsyncContextManager[Bell]: ...


class ClientDialect(Conversation):
    """A dialect's client half. The client asks its dialects in turn: is this yours?

    Each method here is the answer of one that has nothing to say to it.
    """

    async def start(self, tool_name: str, arguments: Mapping[str, Any]) -> str | None:
        """Call a tool in a way of its own, and give the task's id; None: the tool is called as any other."""
        return None

    def ask_for_task(self, link: Link, tool: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a call, with what tells such a server that the call may become a task."""
        return params

    def task_in(self, result: Mapping[str, Any], link: Link) -> str | None:
        """The id of the task that a call over `link` became, if the server answered in this dialect."""
        return None

    def heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        """The task that a notification is about, if it is in this dialect; what it tells may be kept."""
        return None

    def goes_on_with(self, task_id: str, link: Link, *, own: bool) -> bool:
        """Whether a task of an earlier time can be asked about here; `own`: it was begun in this dialect."""
        return False
