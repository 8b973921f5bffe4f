"""Notifications that never hold anybody up: a bounded queue for each session."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import mcp_types as types

from .negotiate import RequestContext, connection_of

logger = logging.getLogger(__name__)

_MOST_WAITING = 256
_SEND_S = 5.0


class _AnyNotification(types.Notification[dict[str, Any], str]):
    """Any method with any parameters."""


def notification(method: str, params: dict[str, Any]) -> Any:
    """A notification for `ServerSession.send_notification`, which is typed for the SDK's own ones."""
    return _AnyNotification(method=method, params=params)


class Outbox:
    """What one session is still to be told, outside any request of its own.

    `put` returns at once. News of one subject replaces older news of it that has not gone out
    yet, and the oldest subject goes when there are too many. A session that does not take a
    notification within five seconds does not read them, so it gets no more: with the SDK's HTTP
    transport an unread stream would in the end hold up the answers to the session's requests.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._waiting: dict[str, Any] = {}
        self._sender: asyncio.Task[None] | None = None
        self.closed = False

    def put(self, subject: str, method: str, params: dict[str, Any]) -> None:
        if self.closed:
            return
        self._waiting[subject] = notification(method, params)
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        while self._waiting and not self.closed:
            message = self._waiting.pop(next(iter(self._waiting)))
            try:
                await asyncio.wait_for(self._session.send_notification(message), _SEND_S)
            except Exception as error:
                logger.info("A session takes no more notifications: %r", error)
                self.close()

    def close(self) -> None:
        self.closed = True
        self._waiting.clear()


def outbox_of(ctx: RequestContext) -> Outbox:
    """The outbox of the client's connection. It lives as long as the connection does."""
    state = getattr(connection_of(ctx), "state", None)
    if state is None:
        return Outbox(ctx.session)
    outbox: Outbox = state.setdefault("backburner.outbox", Outbox(ctx.session))
    return outbox
