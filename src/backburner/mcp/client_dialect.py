"""What every dialect has on the client's side, and what a client and its handles ask of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Protocol

import mcp_types as types

from .connection import Connection, Link
from .updates import Update


class Bell:
    """Rings when there may be news of a task. `trusted` while the server says that it will tell of all."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event
        self.trusted = False


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

    #: The notifications by which its servers tell of tasks.
    news: ClassVar[tuple[str, ...]] = ()

    async def start(self, tool_name: str, arguments: Mapping[str, Any]) -> str | None:
        """Call a tool in a way of its own, and give the task's id; None: the tool is called as any other."""
        return None

    def ask_for_task(self, link: Link, tool: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a call, with what tells such a server that the call may become a task."""
        return params

    def task_in(self, result: Mapping[str, Any]) -> str | None:
        """The id of the task that a call became, if the server answered in this dialect."""
        return None

    def task_in_news(self, params: Mapping[str, Any]) -> str | None:
        """The task that a notification is about, if it is in this dialect."""
        return None

    def goes_on_with(self, task_id: str, link: Link, *, own: bool) -> bool:
        """Whether a task of an earlier time can be asked about here; `own`: it was begun in this dialect."""
        return False


@contextlib.asynccontextmanager
async def bell_of(connection: Connection, task_id: str) -> AsyncIterator[Bell]:
    """A bell that rings when a notification names the task."""
    with connection.bell(task_id) as event:
        yield Bell(event)
