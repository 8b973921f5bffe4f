"""Calls whose answer was not delivered yet, so that a repeated call can join their task.

They are in memory at once. A background writer tells the store of calls that last or were given up, all in
one transaction, so a short call costs no statement. Entries of a killed server expire (docs/decisions/0027).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, takewhile
from typing import Any

from ..app import Backburner
from ..core.lifecycle import State
from ..core.task import NewTask, Task
from ..errors import BackburnerError, TaskNotFound
from ..service.tasks import TaskService, TaskStatus
from ..store.protocol import Note, OpenCall
from ..tools.spec import JoinMode
from .requests import RequestContext

logger = logging.getLogger(__name__)

#: In the `_meta` of a call: always create a new task.
NEW = "backburner/new"
#: In the `_meta` of a result: the task of the earlier call that this call joined.
JOINED = "backburner/joined"

#: Write interval; younger calls are not written.
_WRITE_S = 1.0
#: Cache time of the fact that the store has no open call.
_BELIEF_S = 0.25

#: Number of identical calls that are checked for one to join.
_LOOKED_AT = 32

_Key = tuple[str, str, str]


@dataclass(eq=False, slots=True)
class _Call:
    task_id: str
    key: _Key
    began: float
    heard: float
    #: Requests that wait for the answer now.
    holders: list[RequestContext] = field(default_factory=list)
    given_up: str | None = None
    #: Time until which the store considers the call attended; 0 if it was not written.
    written_until: float = 0.0
    #: Resolved when the task is on disk.
    kept: asyncio.Future[None] | None = None


_Ordered = dict[_Call, None]


class _Identical:
    """Open calls with the same owner, tool and inputs, so that those to join are found without a search.

    Each call is in one of three groups, after those that joined the group earlier.
    """

    __slots__ = ("given_up", "held", "idle")

    def __init__(self) -> None:
        self.given_up: _Ordered = {}
        self.held: _Ordered = {}
        #: Calls without a waiting request; the caller heard least recently comes first.
        self.idle: _Ordered = {}

    def __bool__(self) -> bool:
        return bool(self.given_up or self.held or self.idle)

    def place(self, call: _Call) -> None:
        """Put the call at the end of its group, once it has changed."""
        self.remove(call)
        group = self.given_up if call.given_up is not None else self.held if call.holders else self.idle
        group[call] = None

    def remove(self, call: _Call) -> None:
        for group in (self.given_up, self.held, self.idle):
            group.pop(call, None)


class OpenCalls:
    """The open calls of one server."""

    def __init__(self, app: Backburner) -> None:
        self._app = app
        self._calls: dict[str, _Call] = {}
        self._by_key: dict[_Key, _Identical] = {}
        self._closed: set[str] = set()
        self._notes: list[Note] = []
        self._hurry: asyncio.Event | None = None
        self._writer: asyncio.Task[None] | None = None
        self._none_until = 0.0

    # -- life of a call

    @contextlib.contextmanager
    def opening(self, new: NewTask) -> Iterator[None]:
        """Register a call whose task is stored in this block; joining calls wait for its end."""
        call = _Call(new.task_id, _key(new), time.monotonic(), time.monotonic())
        call.kept = asyncio.get_running_loop().create_future()
        self._add(call)
        try:
            yield
        except asyncio.CancelledError:
            self.left(call.task_id)  # the task may be stored nevertheless
            raise
        except BaseException:
            self.close(call.task_id)
            raise
        finally:
            call.kept.set_result(None)
            call.kept = None

    @contextlib.contextmanager
    def held(self, task_id: str, holder: RequestContext) -> Iterator[None]:
        """Mark the request `holder` as waiting for the answer in this block."""
        call = self._calls.get(task_id)
        if call is None:
            yield
            return
        call.holders.append(holder)
        self._place(call)
        try:
            yield
        finally:
            call.holders = [other for other in call.holders if other is not holder]
            self._heard(call)

    def touch(self, task_id: str) -> None:
        """Record that the caller is still active."""
        if (call := self._calls.get(task_id)) is not None:
            self._heard(call)

    def holders(self, task_id: str) -> list[RequestContext]:
        """Return the requests that wait for the answer."""
        call = self._calls.get(task_id)
        return [] if call is None else list(call.holders)

    def is_held(self, task_id: str) -> bool:
        return bool(self.holders(task_id))

    def left(self, task_id: str) -> None:
        """Mark the caller as gone; `give_up` may add the reason."""
        if (call := self._calls.get(task_id)) is not None:
            call.given_up = call.given_up or "gone"
            self._place(call)

    def give_up(self, task_id: str, why: str, **detail: Any) -> None:
        """Record that the caller stopped waiting; a detail also goes to the task's audit trail."""
        if (call := self._calls.get(task_id)) is not None:
            call.given_up = why
            self._place(call)
        if detail:
            self._notes.append(Note(task_id, "given_up", {"why": why, **detail}))
        self._write_soon(hurry=True)

    def close(self, task_id: str) -> None:
        """Remove a call whose answer was delivered or is not wanted."""
        call = self._calls.get(task_id)
        if call is not None:
            self._forget(call)
        if call is None or call.written_until:
            self._closed.add(task_id)
            self._write_soon()

    def _add(self, call: _Call) -> None:
        self._calls[call.task_id] = call
        self._by_key.setdefault(call.key, _Identical()).place(call)
        self._write_soon()

    def _heard(self, call: _Call) -> None:
        call.heard = time.monotonic()
        self._place(call)

    def _place(self, call: _Call) -> None:
        """Update the index after a change of the call; a call that is not open any more has no place."""
        if self._calls.get(call.task_id) is call:
            self._by_key[call.key].place(call)

    # -- joining

    async def join(
        self, new: NewTask, mode: JoinMode, abandoned: Callable[[RequestContext, float], Awaitable[bool]]
    ) -> TaskStatus | None:
        """Return the task of an earlier identical call that this one may join.

        `abandoned` returns whether the client of a waiting request may be gone, given its waiting time.
        """
        here, there = partial(self._join_here, new, mode, abandoned), partial(self._join_there, new, mode)
        # The same call may arrive while the store is read.
        return await here() or await there() or await here()

    async def _join_here(
        self, new: NewTask, mode: JoinMode, abandoned: Callable[[RequestContext, float], Awaitable[bool]]
    ) -> TaskStatus | None:
        """Join a call of this server; of many, only a few are checked."""
        identical = self._by_key.get(_key(new))
        if identical is None:
            return None
        given_up, held, now = reversed(identical.given_up), reversed(identical.held), time.monotonic()
        if mode == "always":
            free, held = chain(held, reversed(identical.idle), given_up), iter(())
        else:
            free = chain(given_up, self._unattended(identical, now))
        free_calls, held_calls = list(islice(free, _LOOKED_AT)), list(islice(held, _LOOKED_AT))
        for call in free_calls:
            if (status := await self._joined(call)) is not None:
                return status
        for call in held_calls:
            if await self._is_abandoned(call, abandoned) and (status := await self._joined(call)) is not None:
                return status
        return None

    async def _join_there(self, new: NewTask, mode: JoinMode) -> TaskStatus | None:
        """Join a call known only to the store."""
        if not await self._may_be_in_store():
            return None
        service = self._app.service
        for kept in await service.aio.look(service.store.calls_like, *_key(new)):
            if kept.task_id in self._calls or (kept.is_attended and mode != "always"):
                continue
            if kept.task_id in self._closed:
                continue
            now = time.monotonic()
            call = _Call(kept.task_id, _key(new), now, now, given_up=kept.given_up or "gone")
            call.written_until = now
            if (status := await self._joined(call)) is not None:
                if kept.task_id not in self._calls:
                    self._add(call)
                return status
        return None

    async def _is_abandoned(
        self, call: _Call, abandoned: Callable[[RequestContext, float], Awaitable[bool]]
    ) -> bool:
        waited_s = time.monotonic() - call.began
        return any([await abandoned(holder, waited_s) for holder in list(call.holders)])

    def _unattended(self, identical: _Identical, now: float) -> Iterator[_Call]:
        """Yield the idle calls whose caller was not heard for long."""
        return takewhile(lambda call: not self._is_attended(call, now), identical.idle)

    def _is_attended(self, call: _Call, now: float) -> bool:
        return bool(call.holders) or now - call.heard < self._app.settings.mcp.attended_s

    async def _joined(self, call: _Call) -> TaskStatus | None:
        if call.kept is not None:
            await asyncio.shield(call.kept)
        service = self._app.service
        try:
            status = await service.aio.status(call.task_id, owner=call.key[0])
        except TaskNotFound:
            return None
        if not self._has_an_answer(status.task):
            self.close(call.task_id)
            return None
        self._notes.append(Note(call.task_id, "joined", {}))
        self._write_soon(hurry=True)
        return status

    def _has_an_answer(self, task: Task) -> bool:
        """Return whether the task has, or will have, a recent enough answer."""
        if task.cancel_requested or task.state in (State.CANCELLED, State.EXPIRED):
            return False
        if task.completed_at is None:
            return True
        return self._app.store.now_ms() - task.completed_at < self._app.settings.mcp.join_window_s * 1000

    async def _may_be_in_store(self) -> bool:
        if time.monotonic() < self._none_until:
            return False
        service = self._app.service
        if await service.aio.look(service.store.has_calls):
            return True
        self._none_until = time.monotonic() + _BELIEF_S
        return False

    # -- writing to the store

    def _write_soon(self, *, hurry: bool = False) -> None:
        if hurry and self._hurry is not None:
            self._hurry.set()
        if self._writer is None or self._writer.done():
            self._hurry = asyncio.Event()  # of this event loop
            if hurry:
                self._hurry.set()
            self._writer = asyncio.ensure_future(self._keep_writing(self._hurry))

    async def _keep_writing(self, hurry: asyncio.Event) -> None:
        service = self._app.service
        try:
            while self._calls or self._closed or self._notes:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(hurry.wait(), _WRITE_S)
                hurry.clear()
                await self._write(service)
        finally:
            self._say_last(service)

    async def _write(self, service: TaskService) -> None:
        if self._closed and not await self._may_be_in_store():
            self._closed.clear()
        now, attended_s = time.monotonic(), self._app.settings.mcp.attended_s
        kept = [call for call in self._not_idle(now) if self._is_to_be_told(call, now)]
        closed, notes = list(self._closed), self._notes
        if not (kept or closed or notes):
            return
        self._notes = []
        told = [self._as_told(call, now) for call in kept]
        try:
            await service.aio.run(service.store.write_calls, told, closed, notes)
        except (BackburnerError, RuntimeError) as error:
            logger.info("Open calls could not be written: %s", error)
            self._notes = [*notes, *self._notes]
            return
        self._closed.difference_update(closed)
        if kept:
            self._none_until = 0.0
        for call in kept:
            call.written_until = now + attended_s
            # An unattended call is complete in the store.
            if not self._is_attended(call, now) or (call.given_up is not None and not call.holders):
                self._forget(call)

    def _not_idle(self, now: float) -> Iterator[_Call]:
        """Yield the calls that are held, given up or unattended; the others are not searched."""
        for identical in self._by_key.values():
            yield from chain(identical.given_up, identical.held, self._unattended(identical, now))

    def _is_to_be_told(self, call: _Call, now: float) -> bool:
        """Return whether the store must learn of the call."""
        if call.kept is not None:
            return False
        if call.holders:
            old = now - call.began >= _WRITE_S
            return old and call.written_until < now + self._app.settings.mcp.attended_s / 2
        return call.given_up is not None or not self._is_attended(call, now)

    def _as_told(self, call: _Call, now: float) -> OpenCall:
        waits_s = 0.0 if call.given_up and not call.holders else self._app.settings.mcp.attended_s
        if not call.holders:
            waits_s -= now - call.heard
        return OpenCall(
            call.task_id, *call.key, attended_ms=max(0, int(waits_s * 1000)), given_up=call.given_up
        )

    def _forget(self, call: _Call) -> None:
        if self._calls.get(call.task_id) is call:
            del self._calls[call.task_id]
            identical = self._by_key[call.key]
            identical.remove(call)
            if not identical:
                del self._by_key[call.key]

    def _say_last(self, service: TaskService) -> None:
        """Write the final state when the server ends: held calls are gone."""
        for call in self._calls.values():
            if call.holders:
                call.given_up, call.holders = call.given_up or "gone", []
        now = time.monotonic()
        told = [self._as_told(call, now) for call in self._calls.values()]
        if told or self._closed or self._notes:
            with contextlib.suppress(Exception):  # the entries expire otherwise
                service.store.write_calls(told, list(self._closed), self._notes)


def _key(new: NewTask) -> _Key:
    return new.owner, new.tool_name, new.inputs_hash


def joined_notice(task_id: str) -> str:
    """Return the sentence for a model whose call joined another."""
    return f"This call joined the same call made before, task {task_id}: the tool ran once for both."


def mark_joined(result: dict[str, Any], status: TaskStatus, *, typed: bool) -> dict[str, Any]:
    """Add the notice to an answer if its call joined another."""
    return as_joined(result, status.task_id, typed=typed) if status.joined else result


def as_joined(result: dict[str, Any], task_id: str, *, typed: bool) -> dict[str, Any]:
    """Add the notice of a joined call: in `_meta`, and as text unless the result is typed."""
    said = {**result, "_meta": {**(result.get("_meta") or {}), JOINED: task_id}}
    if typed or "content" not in result:
        return said
    words = {"type": "text", "text": joined_notice(task_id)}
    return {**said, "content": [*result["content"], words]}
