"""Notifications that never hold anybody up: a bounded queue for each session."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import mcp_types as types

from ..figures import FIGURES
from .request import RequestContext, is_modern
from .sdk import connection_of

logger = logging.getLogger(__name__)

_MOST_WAITING = 256
_SEND_S = 5.0
#: Less than what fits between a server and a client that does not read.
_WINDOW = 48 * 1024


class _AnyNotification(types.Notification[dict[str, Any], str]):
    """Any method with any parameters."""


def notification(method: str, params: dict[str, Any]) -> Any:
    """A notification for `ServerSession.send_notification`, which is typed for the SDK's own ones."""
    return _AnyNotification(method=method, params=params)


class Outbox:
    """What one session is still to be told, outside any request of its own.

    `put` returns at once. News of one subject replaces older news of it that has not gone out
    yet, and the oldest subject goes when there are too many. A session that does not take a
    notification within five seconds does not read them, so it gets no more.

    With a `window`, so many bytes go out before the client must show, by answering a ping, that
    it reads: with the SDK's HTTP transport a stream that is open and full would hold up the
    answers to the session's requests, and by then it is too late to stop.
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
            FIGURES.notifications_dropped += 1
            return
        self._waiting[subject] = notification(method, params)
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
            FIGURES.notifications_dropped += 1
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
                logger.info("A session takes no more notifications: %r", error)
                FIGURES.notifications_dropped += message is not None
                self.close()

    async def _confirm(self) -> None:
        """Wait until the client has read what was sent, once there is enough of it."""
        if self._window is not None and self._unconfirmed > self._window:
            await self._session.send_request(types.PingRequest(), types.EmptyResult)
            self._unconfirmed = 0

    def close(self) -> None:
        self.closed = True
        FIGURES.notifications_dropped += len(self._waiting)
        self._waiting.clear()


_LASTING = "backburner.while-connected"


def while_connected(ctx: RequestContext, task: asyncio.Task[None]) -> None:
    """When the client goes, nobody needs the task. (Connections of the later era end with a request.)"""
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
    """What is kept with the client's connection, for as long as that lives."""
    return connection_of(ctx.session).state


def outbox_of(ctx: RequestContext) -> Outbox:
    """The outbox of the client's connection."""
    state = connection_state(ctx)
    if "backburner.outbox" not in state:
        over_http = ctx.request is not None
        state["backburner.outbox"] = Outbox(ctx.session, _WINDOW if over_http else None)
    outbox: Outbox = state["backburner.outbox"]
    return outbox
