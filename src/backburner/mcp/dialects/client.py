"""Client side of a dialect: the interface that BackburnerClient and its handles use."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import mcp_types as types

from ..connection import Link
from ..updates import Update

#: Core notification that servers also send for tasks.
PROGRESS = "notifications/progress"


class Subscription:
    """Signals news of a task. `reliable` while the server promises to report every change.

    `updates` has what the server has pushed, oldest first; the listener removes them.
    """

    def __init__(self, event: asyncio.Event, updates: deque[Update] | None = None) -> None:
        self.event = event
        self.reliable = False
        self.updates = deque[Update]() if updates is None else updates


class Conversation(Protocol):
    """Operations on a task. Every method raises ConnectionLost and MCPError."""

    name: ClassVar[str]

    async def read(self, task_id: str) -> Update: ...

    async def result(self, task_id: str) -> types.CallToolResult:
        """Return the result of a finished task. Raises the error of the call, and TaskWasCancelled."""
        ...

    async def cancel(self, task_id: str) -> None: ...

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> None: ...

    def subscribed(self, task_id: str) -> contextlib.AbstractAsyncContextManager[Subscription]: ...


class ClientDialect(Conversation):
    """Client half of a dialect. The client asks its dialects in turn; the defaults decline."""

    async def start(self, tool_name: str, arguments: Mapping[str, Any]) -> str | None:
        """Call a tool in the dialect's own way and return the task id; None to call it as usual."""
        return None

    def ask_for_task(self, link: Link, tool: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Return the call's parameters with the request for a task."""
        return params

    def task_in(self, result: Mapping[str, Any], link: Link) -> str | None:
        """Return the id of the task that a call became, if the answer is in this dialect."""
        return None

    def heard(self, method: str, params: Mapping[str, Any]) -> str | None:
        """Return the task that a notification is about, if it is in this dialect."""
        return None

    def can_resume(self, task_id: str, link: Link, *, own: bool) -> bool:
        """Return whether an earlier task can be resumed here; `own` if it began in this dialect."""
        return False
