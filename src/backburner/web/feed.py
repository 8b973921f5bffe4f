"""What happens in a store, for any number of listeners of one process: it is read once for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from ..app import Backburner
from ..errors import StoreError
from ..looking import Happening, Happenings
from ..records import record
from ..watch import ANYTHING

#: After a read nothing is read for so long, and for each listener so much longer: so what they cost together
#: stays the same, and what happens meanwhile comes to each of them in one piece.
_PAUSE_S, _PAUSE_FOR_EACH_S = 0.05, 0.005
_LONGEST_PAUSE_S = 2.0
#: How many pieces a listener may be behind. One who is further behind is let go, and may come again.
_LONGEST_QUEUE = 64
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Told:
    """An event as it goes out, and where it is in the order of all events."""

    order: tuple[int, int]
    frame: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Events that go out together; `frame` is made once for all who get the same."""

    told: tuple[Told, ...]
    frame: bytes

    @classmethod
    def of(cls, told: Iterable[Told]) -> Piece:
        some = tuple(told)
        return cls(some, b"".join(one.frame for one in some))

    def after(self, order: tuple[int, int]) -> Piece:
        if not self.told or self.told[0].order > order:
            return self
        return Piece.of(one for one in self.told if one.order > order)


#: Before all events: from now on nothing is missed. A browser that loses the stream comes again so soon.
OPEN = Piece((), b": open\nretry: 2000\n\n")
#: In the place of events: some were missed, since they were not kept in order any more.
MISSED = Piece((), b"event: missed\ndata: {}\n\n")


@dataclass(eq=False)
class _Listener:
    owner: str | None
    queue: asyncio.Queue[Piece | None] = field(default_factory=lambda: asyncio.Queue(_LONGEST_QUEUE + 1))

    def take(self, piece: Piece) -> None:
        if self.queue.qsize() < _LONGEST_QUEUE:
            self.queue.put_nowait(piece)
        elif not self.queue.full():
            self.queue.put_nowait(None)


class Feed:
    """Events as they are committed. With the first listener it begins to read, and with the last it ends."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._listeners: set[_Listener] = set()
        self._wanted_by = 0
        self._reading: asyncio.Task[None] | None = None
        self._place = ""

    async def listen(self, owner: str | None, after: str | None) -> AsyncGenerator[Piece, None]:
        """The events of an owner's tasks (None: of all) after a place, or from OPEN on: each of them once.

        It ends when the listener is too far behind. Raises InvalidCursor before the first one.
        """
        listener = _Listener(owner)
        async with self._listening(listener):
            begun_at = order_of(self._place)
            yield OPEN
            if after is not None:
                async for piece in self._since(after, begun_at, owner):
                    yield piece
                begun_at = max(begun_at, order_of(after))
            while (heard := await listener.queue.get()) is not None:
                if (piece := heard.after(begun_at)).frame:
                    yield piece

    async def check(self, after: str | None) -> None:
        """Raises InvalidCursor for what is no place, and StoreError: before an answer begins."""
        await self._read(after, 1)

    async def _since(
        self, after: str, until: tuple[int, int], owner: str | None
    ) -> AsyncGenerator[Piece, None]:
        """What is there already, up to what the feed has told its listeners by now."""
        more = True
        while more:
            page = await self._read(after, _PAGE)
            if page.missed:
                yield MISSED
            known = [one for one in page.events if order_of(one.place) <= until]
            yield _piece(known, owner)
            after, more = page.place, page.more and len(known) == len(page.events)

    async def _read(self, after: str | None, limit: int) -> Happenings:
        return await self._app.service.aio.run(self._app.store.happenings, after, limit)

    @contextlib.asynccontextmanager
    async def _listening(self, listener: _Listener) -> AsyncIterator[None]:
        if self._reading is None or self._reading.done():
            began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reading, self._began = asyncio.ensure_future(self._run(began)), began
        self._wanted_by += 1
        try:
            await asyncio.shield(self._began)
            self._listeners.add(listener)
            yield
        finally:
            self._listeners.discard(listener)
            self._wanted_by -= 1
            if not self._wanted_by and self._reading is not None:
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
                pause_s = _PAUSE_S + _PAUSE_FOR_EACH_S * len(self._listeners)
                await asyncio.sleep(min(pause_s, _LONGEST_PAUSE_S))
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
            pieces: dict[str | None, Piece] = {}
            for listener in self._listeners:
                if listener.owner not in pieces:
                    pieces[listener.owner] = _piece(page.events, listener.owner)
                if pieces[listener.owner].told:
                    listener.take(pieces[listener.owner])
            self._place, more = page.place, page.more


def order_of(place: str) -> tuple[int, int]:
    """Places as they follow each other."""
    txid, _, number = place.partition("-")
    return int(txid), int(number)


def _piece(events: Iterable[Happening], owner: str | None) -> Piece:
    return Piece.of(_told(one) for one in events if owner in (None, one.owner))


def _told(happening: Happening) -> Told:
    about = {"owner": happening.owner, "tool_name": happening.tool_name, "queue": happening.queue}
    text = json.dumps({**record(happening.event), **about}, ensure_ascii=False, separators=(",", ":"))
    frame = f"id: {happening.place}\nevent: event\ndata: {text}\n\n"
    return Told(order_of(happening.place), frame.encode("utf-8", "replace"))
