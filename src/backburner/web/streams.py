"""Server-sent event streams: the event feed, and the log of one task."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from ..app import Backburner
from ..core.lifecycle import TERMINAL
from ..core.monitoring import FeedEvent
from ..errors import InvalidCursor, TaskNotFound
from ..service.monitoring import EventFeed, listen_async
from ..service.records import record
from .access import SAFE_HEADERS, Access
from .task_records import TaskRecords

#: Lifetime of a stream. The client reconnects with Last-Event-ID, and its token is checked again.
LIFE_S = 900.0
#: A client that reads nothing for this long is disconnected.
_SEND_TIMEOUT_S = 30
_PING_S = 15
#: Shortest time between two reads of a log.
_LOG_PAUSE_S = 0.1

#: First frame of a stream: later events are not missed. A browser reconnects after two seconds.
OPEN = b": open\nretry: 2000\n\n"
#: Some events are missing: their order is no longer stored.
_MISSED = b"event: missed\ndata: {}\n\n"


class Streams:
    def __init__(self, app: Backburner, records: TaskRecords) -> None:
        self._app, self._records = app, records
        self._feed: EventFeed | None = None

    async def events(self, access: Access, after: str | None) -> Response:
        """Stream the events of all visible tasks. Raises InvalidCursor."""
        if self._feed is None:
            self._feed = EventFeed(self._app.service, _feed_frame)
        await self._feed.check(after)
        return stream(self._feed_frames(self._feed, access.owner, after))

    async def _feed_frames(
        self, feed: EventFeed, owner: str | None, after: str | None
    ) -> AsyncIterator[ServerSentEvent | bytes]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIFE_S):
                async with contextlib.aclosing(feed.listen(owner, after)) as batches:
                    await anext(batches)
                    yield OPEN
                    async for batch in batches:
                        if batch.missed:
                            yield _MISSED
                        yield batch.data

    async def log(self, access: Access, task_id: str, after: int, last_event_id: str | None) -> Response:
        """Stream the log of a task and its status. Raises InvalidCursor and TaskNotFound."""
        if last_event_id is not None:
            if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 12):
                raise InvalidCursor
            after = int(last_event_id)
        await self._app.service.aio.head(task_id, owner=access.owner)
        return stream(self._log_frames(access, task_id, after))

    async def _log_frames(
        self, access: Access, task_id: str, after: int
    ) -> AsyncIterator[ServerSentEvent | bytes]:
        """Yield new lines and each changed status, until the task has ended and its log is complete."""
        yield OPEN
        service, shown, offset = self._app.service, None, 0
        changed, stop = await listen_async(service, f"task:{task_id}")
        try:
            with contextlib.suppress(TimeoutError, TaskNotFound):
                async with asyncio.timeout(LIFE_S):
                    while True:
                        changed.clear()
                        status = await service.aio.status(task_id, owner=access.owner)
                        more = True
                        while more:
                            page = await service.aio.run(
                                self._records.logs, access, task_id, after=after, offset=offset, limit=1000
                            )
                            for line in page["lines"]:
                                whole = line["offset"] + len(line["message"]) == line["length"]
                                yield _event("line", line, str(line["seq"]) if whole else None)
                            after, offset, more = page["next_after"], page["next_offset"], page["more"]
                        if (now := self._records.status(access, status)) != shown:
                            shown = now
                            yield _event("task", now)
                        if status.task.state in TERMINAL:
                            yield _event("end", {"state": str(status.task.state)})
                            return
                        await changed.wait()
                        await asyncio.sleep(_LOG_PAUSE_S)
        finally:
            stop()


def stream(frames: AsyncIterator[ServerSentEvent | bytes] | AsyncIterator[bytes]) -> Response:
    headers = {**SAFE_HEADERS, "X-Accel-Buffering": "no"}
    return EventSourceResponse(frames, headers=headers, ping=_PING_S, send_timeout=_SEND_TIMEOUT_S, sep="\n")


def _event(name: str, values: dict[str, Any], event_id: str | None = None) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(values), event=name, id=event_id)


def _feed_frame(one: FeedEvent) -> bytes:
    values = {**record(one.event), "owner": one.owner, "tool_name": one.tool_name, "queue": one.queue}
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return f"id: {one.place}\nevent: event\ndata: {text}\n\n".encode("utf-8", "replace")
