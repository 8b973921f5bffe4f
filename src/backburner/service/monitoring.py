"""Monitoring reads: completion statistics, tool runtimes and the live event feed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from ..core.monitoring import LATENCY_BOUNDS_MS, Ended, FeedEvent, FeedPage
from ..core.times import iso
from ..errors import InvalidRequest, StoreError
from ..store.protocol import ANYTHING, Store
from .tasks import TaskService

_MAX_INTERVALS = 1500
_BOUNDS_S = [bound / 1000 for bound in LATENCY_BOUNDS_MS]
#: Runtimes cover the tools of this many latest tasks.
_LATEST_TASKS = 500


# -- completion statistics -------------------------------------------------------------------------


def statistics(store: Store, since: int, until: int, every_ms: int, **filters: Any) -> dict[str, Any]:
    """Return completions from `since` to `until` in intervals of `every_ms`, empty intervals included."""
    count = -(-(until - since) // every_ms) if every_ms > 0 else 0
    if not 1 <= count <= _MAX_INTERVALS:
        reason = f"since, until and every_s must give 1 to {_MAX_INTERVALS} intervals, not {count}"
        raise InvalidRequest(reason=reason)
    found: dict[int, list[Ended]] = {}
    for one in store.ended(since, until, every_ms, **filters):
        found.setdefault(one.stretch, []).append(one)
    return {
        "since": iso(since),
        "until": iso(until),
        "every_s": every_ms / 1000,
        "bounds_s": _BOUNDS_S,
        "total": _totals(one for some in found.values() for one in some),
        "stretches": [
            {"since": iso(since + n * every_ms), **_totals(found.get(n, ()))} for n in range(count)
        ],
    }


def merge_statistics(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Merge the statistics of two adjacent periods; `after` starts where `before` ends."""
    totals = (before["total"], after["total"])

    def added(name: str) -> list[int]:
        return [sum(counts) for counts in zip(*(one[name]["counts"] for one in totals), strict=True)]

    return {
        **after,
        "since": before["since"],
        "stretches": [*before["stretches"], *after["stretches"]],
        "total": {
            "ended": dict(sum((Counter(one["ended"]) for one in totals), Counter[str]())),
            **{name: _histogram(added(name)) for name in ("wait", "run")},
        },
    }


def _totals(ended: Iterable[Ended]) -> dict[str, Any]:
    states, waits, runs = Counter[str](), Counter[int](), Counter[int]()
    for one in ended:
        states[str(one.state)] += one.tasks
        if one.wait is not None:
            waits[one.wait] += one.tasks
        if one.run is not None:
            runs[one.run] += one.tasks
    return {"ended": dict(states), "wait": _histogram(_counts(waits)), "run": _histogram(_counts(runs))}


def _counts(classes: Mapping[int, int]) -> list[int]:
    return [classes.get(n, 0) for n in range(len(_BOUNDS_S) + 1)]


def _histogram(counts: list[int]) -> dict[str, Any]:
    return {
        "counts": counts,
        "half_within_s": _quantile_bound(counts, 0.5),
        "most_within_s": _quantile_bound(counts, 0.95),
    }


def _quantile_bound(counts: list[int], part: float) -> float | None:
    """Return the first bound that covers this part of the counts; None without one."""
    wanted, seen = part * sum(counts), 0
    for bound_s, count in zip(_BOUNDS_S, counts, strict=False):
        seen += count
        if seen and seen >= wanted:
            return bound_s
    return None


def runtimes(service: TaskService, owner: str | None) -> list[dict[str, Any]]:
    """Return durations per tool that an owner (None: anyone) used lately. Runs of all owners count."""
    known = {task.tool_name for task in service.list(owner=owner, limit=_LATEST_TASKS).tasks}
    found = []
    for name in sorted(known):
        if took := [run.seconds for run in service.store.runtimes(name)]:
            slow = took[0] if len(took) == 1 else quantiles(took, n=100, method="inclusive")[94]
            found.append({"tool_name": name, "runs": len(took), "median_s": median(took), "p95_s": slow})
    return found


# -- event feed ------------------------------------------------------------------------------------

#: Pause after each read, plus an addition per listener: the total cost stays constant, and each listener
#: receives the events of the pause in one batch.
_PAUSE_S, _PAUSE_PER_LISTENER_S = 0.05, 0.005
_MAX_PAUSE_S = 2.0
#: A listener further behind is disconnected and may reconnect.
_MAX_QUEUED_BATCHES = 64
_PAGE = 500

Place = tuple[int, int]
Encoder = Callable[[FeedEvent], bytes]


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Encoded events; `data` is shared by all listeners that receive the same batch."""

    events: tuple[tuple[Place, bytes], ...]
    data: bytes
    missed: bool = False

    @classmethod
    def of(cls, events: Iterable[tuple[Place, bytes]], *, missed: bool = False) -> FeedBatch:
        some = tuple(events)
        return cls(some, b"".join(data for _, data in some), missed)

    def after(self, place: Place) -> FeedBatch:
        if not self.events or self.events[0][0] > place:
            return self
        return FeedBatch.of(one for one in self.events if one[0] > place)


@dataclass(eq=False)
class _Listener:
    owner: str | None
    queue: asyncio.Queue[FeedBatch | None] = field(
        default_factory=lambda: asyncio.Queue(_MAX_QUEUED_BATCHES + 1)
    )

    def put(self, batch: FeedBatch) -> None:
        if self.queue.qsize() < _MAX_QUEUED_BATCHES:
            self.queue.put_nowait(batch)
        elif not self.queue.full():
            self.queue.put_nowait(None)


class EventFeed:
    """Committed events for any number of listeners. The store is read once for all of them.

    Reading starts with the first listener and stops with the last.
    """

    def __init__(self, service: TaskService, encode: Encoder) -> None:
        self._service, self._encode = service, encode
        self._listeners: set[_Listener] = set()
        self._users = 0
        self._reader: asyncio.Task[None] | None = None
        self._place = ""

    async def listen(self, owner: str | None, after: str | None) -> AsyncGenerator[FeedBatch, None]:
        """Yield events of an owner's tasks (None: of all) after a place, each once.

        The first batch is empty: it marks the start. The generator ends when the listener falls too far
        behind. Raises InvalidCursor before the first batch.
        """
        listener = _Listener(owner)
        async with self._subscribed(listener):
            begun_at = place_of(self._place)
            yield FeedBatch.of(())
            if after is not None:
                async for batch in self._since(after, begun_at, owner):
                    yield batch
                begun_at = max(begun_at, place_of(after))
            while (received := await listener.queue.get()) is not None:
                if (batch := received.after(begun_at)).data:
                    yield batch

    async def check(self, after: str | None) -> None:
        """Raise InvalidCursor or StoreError before a response starts."""
        await self._read(after, 1)

    async def _since(self, after: str, until: Place, owner: str | None) -> AsyncGenerator[FeedBatch, None]:
        """Yield stored events up to the place that the feed has reached."""
        more = True
        while more:
            page = await self._read(after, _PAGE)
            known = [one for one in page.events if place_of(one.place) <= until]
            yield self._batch(known, owner, missed=page.missed)
            after, more = page.place, page.more and len(known) == len(page.events)

    async def _read(self, after: str | None, limit: int) -> FeedPage:
        return await self._service.aio.run(self._service.store.happenings, after, limit)

    @contextlib.asynccontextmanager
    async def _subscribed(self, listener: _Listener) -> AsyncIterator[None]:
        if self._reader is None or self._reader.done():
            began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reader, self._began = asyncio.ensure_future(self._run(began)), began
        self._users += 1
        try:
            await asyncio.shield(self._began)
            self._listeners.add(listener)
            yield
        finally:
            self._listeners.discard(listener)
            self._users -= 1
            if not self._users and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    async def _run(self, began: asyncio.Future[None]) -> None:
        changed, stop = await listen_async(self._service, ANYTHING)
        changed.set()
        try:
            self._place = (await self._read(None, 1)).place
            began.set_result(None)
            while True:
                await changed.wait()
                changed.clear()
                await self._distribute()
                pause_s = _PAUSE_S + _PAUSE_PER_LISTENER_S * len(self._listeners)
                await asyncio.sleep(min(pause_s, _MAX_PAUSE_S))
        except BaseException as error:
            if not began.done():
                began.set_exception(error)
            raise
        finally:
            stop()

    async def _distribute(self) -> None:
        more = True
        while more:
            try:
                page = await self._read(self._place, _PAGE)
            except StoreError:
                return  # the next change, or the next second, tries again
            batches: dict[str | None, FeedBatch] = {}
            for listener in self._listeners:
                if listener.owner not in batches:
                    batches[listener.owner] = self._batch(page.events, listener.owner)
                if batches[listener.owner].events:
                    listener.put(batches[listener.owner])
            self._place, more = page.place, page.more

    def _batch(self, events: Iterable[FeedEvent], owner: str | None, *, missed: bool = False) -> FeedBatch:
        encoded = ((place_of(one.place), self._encode(one)) for one in events if owner in (None, one.owner))
        return FeedBatch.of(encoded, missed=missed)


def place_of(place: str) -> Place:
    """Parse the place of an event, for comparison."""
    txid, _, number = place.partition("-")
    return int(txid), int(number)


async def listen_async(service: TaskService, topic: str) -> tuple[asyncio.Event, Callable[[], None]]:
    """Return an event that is set after each change of a topic, and a function that stops listening."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    return changed, await service.aio.run(service.changes.listen, topic, wake)
