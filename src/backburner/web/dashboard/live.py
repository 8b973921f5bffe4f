"""Pages that move: each is rendered once for all who look at the same, when something has happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from ...app import Backburner
from ...errors import BackburnerError, TaskNotFound
from ...watch import ANYTHING

logger = logging.getLogger(__name__)

Render = Callable[[], Awaitable[str]]

#: After it was rendered, a page rests for so long; and so many times as long as that took, for each page that
#: is looked at: so all of them together take a twentieth of a core at most. What took long only once had to
#: wait for something, and does not count.
_REST_S, _REST_TIMES = 1.0, 20
_LONGEST_REST_S = 30.0
#: A worker that dies says nothing, so now and then we look without being told.
_LOOK_S = 10.0


@dataclass(eq=False)
class _Shown:
    """A page that somebody looks at."""

    render: Render
    frame: bytes = b""
    version: int = 0
    watchers: int = 0
    happened: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    moving: asyncio.Task[None] | None = None


class Live:
    """Hears of changes from the first watcher on until the last one is gone."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._pages: dict[Hashable, _Shown] = {}
        self._stop: Callable[[], None] | None = None
        self._beginning = asyncio.Lock()

    async def follow(self, key: Hashable, render: Render) -> AsyncGenerator[bytes, None]:
        """The page as it is now, and again whenever it is another. Who is slow misses what is over."""
        async with self._watched(key, render) as page:
            seen = 0
            while True:
                async with page.changed:
                    await page.changed.wait_for(lambda: page.version > seen)  # noqa: B023
                    seen = page.version
                yield page.frame

    @contextlib.asynccontextmanager
    async def _watched(self, key: Hashable, render: Render) -> AsyncIterator[_Shown]:
        page = self._pages.setdefault(key, _Shown(render))
        page.watchers += 1
        try:
            await self._hear()
            if page.moving is None or page.moving.done():
                page.moving = asyncio.ensure_future(self._move(page))
            yield page
        finally:
            page.watchers -= 1
            if not page.watchers:
                self._pages.pop(key, None)
                if page.moving is not None:
                    page.moving.cancel()
            if not self._pages and self._stop is not None:
                self._stop()
                self._stop = None

    async def _move(self, page: _Shown) -> None:
        took_s = 0.0
        while True:
            page.happened.clear()
            began = time.monotonic()
            frame = await _rendered(page)
            if frame != page.frame:
                async with page.changed:
                    page.frame, page.version = frame, page.version + 1
                    page.changed.notify_all()
            took_s, before_s = time.monotonic() - began, took_s
            rest_s = _REST_TIMES * min(took_s, before_s) * len(self._pages)
            await asyncio.sleep(min(max(_REST_S, rest_s), _LONGEST_REST_S))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(page.happened.wait(), _LOOK_S)

    async def _hear(self) -> None:
        async with self._beginning:
            if self._stop is not None:
                return
            loop = asyncio.get_running_loop()

            def wake() -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._wake)

            service = self._app.service
            self._stop = await service.aio.run(service.changes.listen, ANYTHING, wake)

    def _wake(self) -> None:
        for page in self._pages.values():
            page.happened.set()


async def _rendered(page: _Shown) -> bytes:
    """The page as it is now; as it was, while it cannot be had: its store may be away."""
    try:
        return _frame("page", await page.render())
    except TaskNotFound as error:
        return _frame("gone", str(error))
    except BackburnerError:
        return page.frame
    except Exception:
        logger.exception("A page of the dashboard could not be rendered")
        return page.frame


def _frame(name: str, text: str) -> bytes:
    return f"event: {name}\ndata: {json.dumps(text)}\n\n".encode()
