"""Event streams (SSE): what happens to all tasks that somebody may see, and the log of one task."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from ...app import Backburner
from ...errors import InvalidCursor, TaskNotFound
from ...lifecycle import TERMINAL
from ..access import Access
from ..feed import OPEN, Feed
from ..reading import Reading
from .operation import Asked
from .problems import SAFE

#: So long a stream lives. Its reader comes again with Last-Event-ID, and with a token that is still good.
LIFE_S = 900.0
#: A reader that takes nothing for so long is let go.
_UNREAD_S = 30
_PING_S = 15
#: A log is looked at so often at most, however much is written.
_LOOK_S = 0.1


class Streams:
    def __init__(self, app: Backburner, reading: Reading) -> None:
        self._app, self._reading = app, reading
        self._feed = Feed(app)

    async def events(self, asked: Asked) -> Response:
        after = asked.request.headers.get("last-event-id") or asked.query.after
        await self._feed.check(after)
        return stream(self._told(asked.access.owner, after))

    async def _told(self, owner: str | None, after: str | None) -> AsyncIterator[ServerSentEvent | bytes]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIFE_S):
                async with contextlib.aclosing(self._feed.listen(owner, after)) as pieces:
                    async for piece in pieces:
                        yield piece.frame

    async def log(self, asked: Asked) -> Response:
        task_id, access = asked.path["task_id"], asked.access
        last = asked.request.headers.get("last-event-id")
        if last is not None and not (last.isascii() and last.isdigit() and len(last) <= 12):
            raise InvalidCursor
        await self._app.service.aio.head(task_id, owner=access.owner)
        after = int(last) if last is not None else asked.query.after
        return stream(self._lines(access, task_id, after))

    async def _lines(
        self, access: Access, task_id: str, after: int
    ) -> AsyncIterator[ServerSentEvent | bytes]:
        """Its lines and what is known of it, as it changes, until it has ended and all is told."""
        yield OPEN.frame
        aio, shown, offset = self._app.service.aio, None, 0
        with contextlib.suppress(TimeoutError, TaskNotFound):
            async with asyncio.timeout(LIFE_S), self._changes_of(task_id) as changed:
                while True:
                    changed.clear()
                    status = await aio.status(task_id, owner=access.owner)
                    more = True
                    while more:
                        page = await aio.run(
                            self._reading.logs, access, task_id, after=after, offset=offset, limit=1000
                        )
                        for line in page["lines"]:
                            whole = line["offset"] + len(line["message"]) == line["length"]
                            yield _event("line", line, str(line["seq"]) if whole else None)
                        after, offset, more = page["next_after"], page["next_offset"], page["more"]
                    if (now := self._reading.status(access, status)) != shown:
                        shown = now
                        yield _event("task", now)
                    if status.task.state in TERMINAL:
                        yield _event("end", {"state": str(status.task.state)})
                        return
                    await changed.wait()
                    await asyncio.sleep(_LOOK_S)

    @contextlib.asynccontextmanager
    async def _changes_of(self, task_id: str) -> AsyncIterator[asyncio.Event]:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        service = self._app.service
        stop: Callable[[], None] = await service.aio.run(service.changes.listen, f"task:{task_id}", wake)
        try:
            yield changed
        finally:
            stop()


def _event(name: str, values: dict[str, Any], place: str | None = None) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(values), event=name, id=place)


def stream(events: AsyncIterator[ServerSentEvent | bytes] | AsyncIterator[bytes]) -> Response:
    headers = {**SAFE, "X-Accel-Buffering": "no"}
    return EventSourceResponse(events, headers=headers, ping=_PING_S, send_timeout=_UNREAD_S, sep="\n")
