"""What happens in a store, for any number of listeners of one process: it is read once for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from ..app import Backburner
from ..errors import StoreError
from ..looking import Happening, Happenings
from ..records import record
from ..watch import ANYTHING

#: After a read so long nothing is read, however much happens: listeners get it together.
_PAUSE_S = 0.05
#: How many events a listener may be behind. One who is further behind is let go, and may come again.
_LONGEST_QUEUE = 2000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Told:
    """An event as listeners get it: where it is in the order of all, whose it is, and its text, made once."""

    place: str
    owner: str
    text: str


#: In the place of an event: some were missed, since they were not kept in order any more.
MISSED = Told("", "", "")


@dataclass(eq=False)
class _Listener:
    owner: str | None
    queue: asyncio.Queue[Told | None] = field(default_factory=lambda: asyncio.Queue(_LONGEST_QUEUE + 1))

    def take(self, told: Told) -> None:
        if self.owner not in (None, told.owner):
            return
        if self.queue.qsize() < _LONGEST_QUEUE:
            self.queue.put_nowait(told)
        elif not self.queue.full():
            self.queue.put_nowait(None)


class Feed:
    """Events as they are committed. With the first listener it begins to read, and with the last it ends."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._listeners: set[_Listener] = set()
        self._reading: asyncio.Task[None] | None = None
        self._place = ""

    async def listen(self, owner: str | None, after: str | None) -> AsyncGenerator[Told, None]:
        """The events of an owner's tasks (None: of all) after a place, or from now on: each of them once.

        It ends when the listener is too far behind. Raises InvalidCursor before the first one.
        """
        listener = _Listener(owner)
        async with self._listening(listener):
            begun_at = order_of(self._place)
            if after is not None:
                async for told in self._since(after, begun_at):
                    if told is MISSED or owner in (None, told.owner):
                        yield told
                begun_at = max(begun_at, order_of(after))
            while (heard := await listener.queue.get()) is not None:
                if order_of(heard.place) > begun_at:
                    yield heard

    async def check(self, after: str) -> None:
        """Raises InvalidCursor for what is no place."""
        await self._read(after, 1)

    async def _since(self, after: str, until: tuple[int, int]) -> AsyncIterator[Told]:
        """What is there already, up to what the feed has told its listeners by now."""
        more = True
        while more:
            page = await self._read(after, _PAGE)
            if page.missed:
                yield MISSED
            for one in page.events:
                if order_of(one.place) > until:
                    return
                yield _told(one)
            after, more = page.place, page.more

    async def _read(self, after: str | None, limit: int) -> Happenings:
        return await self._app.service.aio.run(self._app.store.happenings, after, limit)

    @contextlib.asynccontextmanager
    async def _listening(self, listener: _Listener) -> AsyncIterator[None]:
        if self._reading is None or self._reading.done():
            began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reading = asyncio.ensure_future(self._run(began))
            self._began = began
        await asyncio.shield(self._began)
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._reading is not None:
                self._reading.cancel()
                self._reading = None

    async def _run(self, began: asyncio.Future[None]) -> None:
        heard, stop = await self._hearing()
        try:
            self._place = (await self._read(None, 1)).place
            began.set_result(None)
            while True:
                await heard.wait()
                heard.clear()
                await self._tell()
                await asyncio.sleep(_PAUSE_S)
        except BaseException as error:
            if not began.done():
                began.set_exception(error)
            raise
        finally:
            stop()

    async def _hearing(self) -> tuple[asyncio.Event, Callable[[], None]]:
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        heard.set()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard.set)

        changes = self._app.service.changes
        return heard, await self._app.service.aio.run(changes.listen, ANYTHING, wake)

    async def _tell(self) -> None:
        more = True
        while more:
            try:
                page = await self._read(self._place, _PAGE)
            except StoreError:
                return  # it is away; in a second it is asked again
            for told in map(_told, page.events):
                for listener in self._listeners:
                    listener.take(told)
            self._place, more = page.place, page.more


def order_of(place: str) -> tuple[int, int]:
    """Places as they follow each other."""
    txid, _, number = place.partition("-")
    return int(txid), int(number)


def _told(happening: Happening) -> Told:
    text = json.dumps(event_record(happening), ensure_ascii=False, separators=(",", ":"))
    return Told(happening.place, happening.owner, text)


def event_record(happening: Happening) -> dict[str, Any]:
    about = {"owner": happening.owner, "tool_name": happening.tool_name, "queue": happening.queue}
    shown: dict[str, Any] = record(happening.event)
    return {**shown, **about}
