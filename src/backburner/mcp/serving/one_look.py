"""One look at a time at something that may hang, on a thread of its own, however many ask for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")

#: So long a look counts, so that many who ask cost no more than one.
_FRESH_S = 1.0


class OneLook(Generic[T]):
    """What `look` last found. A store that hangs holds up neither the server nor who asks."""

    def __init__(self, look: Callable[[], T], name: str, patience_s: float) -> None:
        """Who asks waits so long."""
        self._look = look
        self._name = name
        self._patience_s = patience_s
        self._current: Future[T] | None = None
        self._begun_at = 0.0

    async def found(self) -> T:
        """Raises TimeoutError when it takes too long, and what the look raises."""
        found = asyncio.wrap_future(self._begun())
        return await asyncio.wait_for(asyncio.shield(found), self._patience_s)

    def _begun(self) -> Future[T]:
        """The look that goes on, or was made a moment ago; else a new one."""
        current = self._current
        if current is None or (current.done() and time.monotonic() - self._begun_at > _FRESH_S):
            current, self._begun_at = Future(), time.monotonic()
            self._current = current
            threading.Thread(target=self._run, args=(current,), name=self._name, daemon=True).start()
        return current

    def _run(self, look: Future[T]) -> None:
        try:
            look.set_result(self._look())
        except BaseException as error:
            look.set_exception(error)
