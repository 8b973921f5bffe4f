"""Who is told that a task is over, by the call that it came from: an endpoint that it names, and its chat.

A chat is a conversation with a model, on a host that lets servers speak up in it. There is one way so far:
Claude Code's channels, which are a research preview (docs/notifications.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from ..app import Backburner
from ..errors import TaskNotFound
from ..lifecycle import State
from ..task import Task
from .following import follow
from .outbox import outbox_of, while_connected
from .request import RequestContext, request_meta

#: The request that is being served.
REQUEST: ContextVar[RequestContext | None] = ContextVar("backburner_request", default=None)
#: In the `_meta` of a call: the endpoint of its task.
WEBHOOK = "backburner/webhook"

_CHANNEL, _CHANNEL_NEWS = "claude/channel", "notifications/claude/channel"
_WORDS: Mapping[State, str] = {
    State.SUCCEEDED: "has succeeded",
    State.FAILED: "has failed",
    State.CANCELLED: "was cancelled",
    State.TIMED_OUT: "took longer than it may",
    State.EXPIRED: "has expired",
}


def asked_webhook() -> Any:
    """The endpoint that the call which is being answered names for its task; None where it names none."""
    ctx = REQUEST.get()
    return None if ctx is None else request_meta(ctx).get(WEBHOOK)


class ChatWaking:
    """Speaks up in a chat when a task is over whose handle went there. It does nothing unless it is set."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._watching: set[asyncio.Task[None]] = set()

    @property
    def _is_on(self) -> bool:
        return self._app.settings.mcp.wake_chat == "claude-channel"

    def announce(self, capabilities: dict[str, Any]) -> None:
        """Say to clients that this server speaks up: without that they do not listen."""
        if self._is_on:
            experimental = capabilities.get("experimental") or {}
            capabilities["experimental"] = {_CHANNEL: {}, **experimental}

    def when_over(self, task: Task) -> None:
        """Say it once, when the task is over, for as long as the connection lasts; returns at once.

        Only over stdio: that is how hosts run the servers that they listen to.
        """
        ctx = REQUEST.get()
        if self._is_on and ctx is not None and ctx.request is None and not task.finished:
            watching = asyncio.create_task(self._watch(ctx, task))
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)
            while_connected(ctx, watching)

    async def _watch(self, ctx: RequestContext, task: Task) -> None:
        try:
            async for status in follow(self._app.service, task.task_id, task.owner):
                task = status.task
        except TaskNotFound:
            return  # deleted by who knows about it
        about = {"task_id": task.task_id, "tool": task.tool_name, "state": task.state}
        outbox_of(ctx).put(
            f"over:{task.task_id}", _CHANNEL_NEWS, {"content": self._words(task), "meta": about}
        )

    def _words(self, task: Task) -> str:
        """Nothing in it comes from the tool: what that said is only read when the model asks for it."""
        mcp = self._app.settings.mcp
        how = f"read task://{task.task_id}/result"
        if mcp.task_tools:
            how = f"call {mcp.task_tools_prefix}get_task_result with task_id {task.task_id}"
        what = "what went wrong" if task.state is not State.SUCCEEDED else "its result"
        return f"Task {task.task_id} ({task.tool_name}) {_WORDS[task.state]}. For {what}, {how}."
