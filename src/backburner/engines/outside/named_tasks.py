"""The tasks that a supervisor works on because somebody names them to it, one line for each, on a pipe."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import get_args

from ...limits import Limits
from ...reports import Outcome
from ...store import Lease, Store, Turn, Wish
from ...watch import Watch
from ..local.intake import HandedIn
from ..local.leased_attempt import Report
from ..local.work_source import Apart

_CHUNK = 1 << 16
_OUTCOMES = get_args(Outcome)


class NamedWatch:
    """Hears a store, and the names of tasks that come in on a pipe: then there is something in the queue."""

    def __init__(self, watch: Watch, pipe: int, queue: str, unread: bytes = b"") -> None:
        """`unread` are bytes that were read from the pipe already."""
        self._watch = watch
        self._pipe = pipe
        self._topic = f"queue:{queue}"
        self.names: deque[str] = deque()
        self._unread = b""
        self._take(unread)
        #: Whether no name will come any more.
        self.ended = False
        os.set_blocking(pipe, False)
        self._poll = select.epoll()
        for descriptor in (watch.fileno(), pipe):
            self._poll.register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def drain(self) -> set[str]:
        topics = self._watch.drain()
        self._read()
        return topics | {self._topic} if self.names else topics

    def wait(self, timeout_s: float | None = None) -> set[str]:
        select.select([self._poll], [], [], timeout_s)
        return self.drain()

    def mend(self) -> None:
        self._watch.mend()

    def close(self) -> None:
        self._poll.close()
        self._watch.close()

    def _read(self) -> None:
        try:
            while not self.ended:
                chunk = os.read(self._pipe, _CHUNK)
                if not chunk:
                    self.ended = True
                    self._poll.unregister(self._pipe)
                self._take(chunk)
        except BlockingIOError:
            pass

    def _take(self, chunk: bytes) -> None:
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        self.names += [line.decode() for line in lines if line]


class NamedTasks(Apart):
    """Each task that is named is claimed once, by the one worker, and told of when its attempt is over."""

    def __init__(
        self, store: Store, queue: str, limits: Limits, watch: NamedWatch, tell: Callable[[str, bool], object]
    ) -> None:
        """`tell` is called with each name, and whether it was claimed, when that is over."""
        self.slots = {queue: 1}
        self._store = store
        self._limits = limits
        self._watch = watch
        self._tell = tell

    def take_turn(
        self, reports: Sequence[Report], handed_in: Sequence[HandedIn], wishes: Sequence[Wish]
    ) -> Turn:
        lost = self._store.report_all(reports) if reports else []
        for lease, changes in reports:
            if lease in lost or any(isinstance(change, _OUTCOMES) for change in changes):
                self._tell(lease.task_id, True)
        return Turn(lost, [], [self._claim(wish.workers[0]) for wish in wishes])

    def _claim(self, worker: str) -> list[Lease]:
        """The next of those that are named and can be claimed."""
        while self._watch.names:
            name = self._watch.names.popleft()
            lease = self._store.claim_task(name, worker, self._limits)
            if lease is not None:
                return [lease]
            # Another has it, it is over, or a limit holds it: then it is sent again.
            self._store.take_back([name])
            self._tell(name, False)
        return []

    def is_over(self, idle_ms: int) -> bool:
        return self._watch.ended and not self._watch.names
