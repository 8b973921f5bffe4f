"""Waits that a client gave up by its own timer teach how long it waits, as held calls do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ...patience import Patience, asking
from ...request import RequestContext, has_left
from ...sdk import stream_of
from ...timeouts import LATE_S, may_be_timer, timer_ran_out


@dataclass
class Wait:
    """A wait that is under way, and when its client last heard of it."""

    began: float = field(default_factory=time.monotonic)
    spoke: float = field(default_factory=time.monotonic)

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self.spoke


class PatientWaits:
    """The waits of one server that are under way, by connection and request."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._waits: dict[tuple[int, Any], Wait] = {}

    @asynccontextmanager
    async def waiting(self, ctx: RequestContext) -> AsyncIterator[Wait]:
        """A client waits for the end of this block."""
        key, keep_s, client = (stream_of(ctx.session), ctx.request_id), 0.0, asking(ctx)
        wait = self._waits[key] = Wait()
        try:
            yield wait
            if await has_left(ctx):
                await self._patience.learn(client, wait.waited_s, wait.silent_s)
            else:
                await self._patience.delivered(client, wait.waited_s)
        except asyncio.CancelledError:
            keep_s = LATE_S
            if may_be_timer(ctx, wait.waited_s):
                self._patience.learn_soon(client, wait.waited_s, wait.silent_s)
            raise
        finally:
            asyncio.get_running_loop().call_later(keep_s, self._waits.pop, key, None)

    async def cancelled(self, ctx: RequestContext) -> None:
        """The client cancelled one of its requests: if that was a wait, and by its timer, it teaches."""
        said = ctx.params or {}
        request_id = said.get("requestId")
        if not isinstance(request_id, str | int):
            return
        wait = self._waits.pop((stream_of(ctx.session), request_id), None)
        if wait is not None and timer_ran_out(said.get("reason")):
            await self._patience.learn(asking(ctx), wait.waited_s, wait.silent_s)
