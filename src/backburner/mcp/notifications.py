"""Notifications to clients: bounded queues, log messages, and completion messages in chats."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any

import mcp_types as types
from mcp.server.connection import allowed_log_levels

from ..app import Backburner
from ..core.lifecycle import State
from ..core.task import LogLine, Task
from ..errors import TaskNotFound
from ..observability.counters import COUNTERS
from ..service.tasks import TaskService
from .progress import ProgressScale, ProgressUpdate, Token
from .requests import RequestContext, is_modern, request_meta
from .sdk import connection_of
from .updates import follow

#: The current request.
REQUEST: ContextVar[RequestContext | None] = ContextVar("backburner_request", default=None)
#: In the `_meta` of a call: the webhook endpoint of its task.
WEBHOOK = "backburner/webhook"

_CHANNEL, _CHANNEL_NEWS = "claude/channel", "notifications/claude/channel"
_WORDS: Mapping[State, str] = {
    State.SUCCEEDED: "has succeeded",
    State.FAILED: "has failed",
    State.CANCELLED: "was cancelled",
    State.TIMED_OUT: "took longer than it may",
    State.EXPIRED: "has expired",
}


def requested_webhook() -> Any:
    """Return the webhook endpoint that the current call names; None without one."""
    ctx = REQUEST.get()
    return None if ctx is None else request_meta(ctx).get(WEBHOOK)


class ChatNotifier:
    """Sends a channel message to the chat when a task ends whose handle went there, if enabled."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._watching: set[asyncio.Task[None]] = set()

    @property
    def _is_on(self) -> bool:
        return self._app.settings.mcp.wake_chat == "claude-channel"

    def announce(self, capabilities: dict[str, Any]) -> None:
        """Declare the channel capability, without which clients do not listen."""
        if self._is_on:
            experimental = capabilities.get("experimental") or {}
            capabilities["experimental"] = {_CHANNEL: {}, **experimental}

    def notify_when_done(self, task: Task) -> None:
        """Send one message when the task ends, while the connection lasts; returns at once.

        Only over stdio, where hosts support channels.
        """
        ctx = REQUEST.get()
        if self._is_on and ctx is not None and ctx.request is None and not task.finished:
            watching = asyncio.create_task(self._watch(ctx, task))
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)
            cancel_on_disconnect(ctx, watching)

    async def _watch(self, ctx: RequestContext, task: Task) -> None:
        try:
            async for status in follow(self._app.service, task.task_id, task.owner):
                task = status.task
        except TaskNotFound:
            return  # deleted by an operator
        about = {"task_id": task.task_id, "tool": task.tool_name, "state": task.state}
        outbox_of(ctx).put(
            f"over:{task.task_id}", _CHANNEL_NEWS, {"content": self._words(task), "meta": about}
        )

    def _words(self, task: Task) -> str:
        """Return the message. It has no text from the tool: the model reads that only on request."""
        how = f"read task://{task.task_id}/result"
        if self._app.settings.mcp.task_tools:
            how = f"call get_task_result with task_id {task.task_id}"
        what = "what went wrong" if task.state is not State.SUCCEEDED else "its result"
        return f"Task {task.task_id} ({task.tool_name}) {_WORDS[task.state]}. For {what}, {how}."


#: Streams of log messages: plain text, FastMCP's object around a text, or JSON of logger and data.
_TEXT, _NOTE, _JSON = "message", "message.note", "message.json"
_LEVEL = "backburner.log-level"
_PAGE = 200
#: From the least to the most severe.
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def as_line(params: Mapping[str, Any]) -> tuple[str, str]:
    """Return stream and text of the log line for a `notifications/message`."""
    data, logger = params.get("data"), params.get("logger")
    if logger is None and isinstance(data, str):
        return _TEXT, data
    if logger is None and isinstance(data, Mapping) and data == _note(data.get("msg")):
        return _NOTE, str(data["msg"])
    return _JSON, json.dumps({"logger": logger, "data": data}, ensure_ascii=False)


def as_params(line: LogLine) -> dict[str, Any] | None:
    """Return the `notifications/message` parameters of a log line; None for other lines."""
    if line.level not in LEVELS:
        return None
    if line.stream == _TEXT:
        return {"level": line.level, "data": line.message}
    if line.stream == _NOTE:
        return {"level": line.level, "data": _note(line.message)}
    if line.stream == _JSON:
        with suppress(ValueError, KeyError, TypeError):  # whatever a tool wrote itself
            kept = json.loads(line.message)
            named = {} if kept["logger"] is None else {"logger": kept["logger"]}
            return {"level": line.level, "data": kept["data"], **named}
    return None


def _note(text: Any) -> dict[str, Any] | None:
    return {"msg": text, "extra": None} if isinstance(text, str) else None


class LogMessages:
    """`notifications/message` for one held call of an attached tool."""

    def __init__(self, ctx: RequestContext, service: TaskService, task: Task) -> None:
        self._ctx, self._service, self._task = ctx, service, task
        self._cursor: str | None = None
        levels = allowed_log_levels(ctx.protocol_version, request_meta(ctx))
        least = LEVELS.index(connection_state(ctx).get(_LEVEL, LEVELS[0]))
        self._levels = levels.intersection(LEVELS[least:])
        self.wanted = bool(self._levels) and task.result_kind == "call_tool_result"

    async def say(self) -> None:
        """Send the messages written since the last call."""
        more = self.wanted
        while more:
            page = await self._service.aio.logs(
                self._task.task_id, owner=self._task.owner, cursor=self._cursor, limit=_PAGE
            )
            self._cursor, more = page.next_cursor, page.truncated
            for params in map(as_params, page.lines):
                if params is not None and params["level"] in self._levels:
                    await self._ctx.session.send_notification(
                        notification("notifications/message", params), self._ctx.request_id
                    )


def note_level(ctx: RequestContext) -> None:
    """Store the log level that the client has set."""
    level = (ctx.params or {}).get("level")
    if level in LEVELS:
        connection_state(ctx)[_LEVEL] = level


logger = logging.getLogger(__name__)

_MOST_WAITING = 256
_SEND_S = 5.0
#: Less than the buffers between a server and a client that does not read.
_WINDOW = 48 * 1024


class _AnyNotification(types.Notification[dict[str, Any], str]):
    """Any method with any parameters."""


def notification(method: str, params: dict[str, Any]) -> Any:
    """Return a notification for `ServerSession.send_notification`, which accepts only the SDK's types."""
    return _AnyNotification(method=method, params=params)


class Outbox:
    """Queue of notifications for one session, outside its requests.

    `put` returns at once. A newer notification replaces an unsent one of the same subject; with too many
    subjects the oldest is dropped. A session that blocks for five seconds gets no more.

    After `window` unconfirmed bytes the client must answer a ping: with the SDK's HTTP transport a full
    stream would block the answers to the session's requests.
    """

    def __init__(self, session: Any, window: int | None = None) -> None:
        self._session = session
        self._window = window
        self._unconfirmed = 0
        self._waiting: dict[str, Any] = {}
        self._sender: asyncio.Task[None] | None = None
        self.closed = False

    def put(self, subject: str, method: str, params: dict[str, Any]) -> None:
        if self.closed:
            COUNTERS.notifications_dropped += 1
            return
        self._waiting[subject] = notification(method, params)
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
            COUNTERS.notifications_dropped += 1
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        while self._waiting and not self.closed:
            message = None
            try:
                async with asyncio.timeout(_SEND_S):
                    await self._confirm()
                    message = self._waiting.pop(next(iter(self._waiting)))
                    self._unconfirmed += len(message.model_dump_json())
                    await self._session.send_notification(message)
            except Exception as error:
                logger.info("Notifications to a session stopped: %r", error)
                COUNTERS.notifications_dropped += message is not None
                self.close()

    async def _confirm(self) -> None:
        """Wait until the client has read what was sent, once the window is full."""
        if self._window is not None and self._unconfirmed > self._window:
            await self._session.send_request(types.PingRequest(), types.EmptyResult)
            self._unconfirmed = 0

    def close(self) -> None:
        self.closed = True
        COUNTERS.notifications_dropped += len(self._waiting)
        self._waiting.clear()


_LASTING = "backburner.while-connected"


def cancel_on_disconnect(ctx: RequestContext, task: asyncio.Task[None]) -> None:
    """Cancel the task when the client disconnects. (Connections of 2026-07-28 end with each request.)"""
    if is_modern(ctx):
        return
    tasks = connection_state(ctx).get(_LASTING)
    if tasks is None:
        tasks = connection_state(ctx)[_LASTING] = set()
        connection_of(ctx.session).exit_stack.callback(_cancel_all, tasks)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _cancel_all(tasks: set[asyncio.Task[None]]) -> None:
    for task in list(tasks):
        task.cancel()


def connection_state(ctx: RequestContext) -> dict[str, Any]:
    """Return the state stored with the client's connection."""
    return connection_of(ctx.session).state


def outbox_of(ctx: RequestContext) -> Outbox:
    """Return the outbox of the client's connection."""
    state = connection_state(ctx)
    if "backburner.outbox" not in state:
        over_http = ctx.request is not None
        state["backburner.outbox"] = Outbox(ctx.session, _WINDOW if over_http else None)
    outbox: Outbox = state["backburner.outbox"]
    return outbox


class ProgressReporter:
    """Progress notifications for one waiting request; sends nothing without a token."""

    def __init__(
        self,
        ctx: RequestContext,
        token: Token | None,
        scale: ProgressScale,
        latest: ProgressUpdate,
        began: float | None = None,
    ) -> None:
        self._ctx, self._token, self._scale, self._latest = ctx, token, scale, latest
        self._began = self._sent_at = time.monotonic() if began is None else began

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def silent_s(self) -> float:
        """Time since the last notification."""
        return time.monotonic() - self._sent_at

    async def send(self, update: ProgressUpdate | None = None) -> None:
        """Send an update if it is new; without one, repeat the latest."""
        self._latest = update or self._latest
        if self._token is None:
            return
        params = self._scale.params(self._token, self._latest, anyway=update is None)
        if params is not None:
            message = notification("notifications/progress", params)
            await self._ctx.session.send_notification(message, self._ctx.request_id)
            self._sent_at = time.monotonic()

    @asynccontextmanager
    async def repeating(self, interval_s: float) -> AsyncIterator[None]:
        """Repeat the latest update in this block: some clients restart their timeout on progress."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s)
                await self.send()

        repeats = asyncio.ensure_future(repeat())
        try:
            yield
        finally:
            repeats.cancel()
