"""The tasks that a supervisor works on because somebody names them to it, one line for each, on a pipe."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...limits import Limits
from ...store import Lease, Store, Turn, Wish
from ...watch import Watch
from ..local.intake import HandedIn
from ..local.leased_attempt import Report
from ..local.work_source import Apart
from ..local.write_batch import SHARE_COMMIT_MS

_CHUNK = 1 << 16


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
        """`tell` is called with each name, and whether it was claimed, when that is over.

        It need not be on disk then: until it is, the task is leased, and nobody else gets it.
        """
        self.slots = {queue: 1}
        self._store = store
        self._limits = limits
        self._watch = watch
        self._tell = tell
        self._told_at = 0.0

    def ended(self, task_id: str) -> None:
        self._told_at = time.monotonic()
        self._tell(task_id, True)

    @property
    def is_in_flow(self) -> bool:
        """Whether the next name came right after the last one's end."""
        return bool(self._watch.names) and time.monotonic() - self._told_at <= SHARE_COMMIT_MS / 1000

    def take_turn(
        self, reports: Sequence[Report], handed_in: Sequence[HandedIn], wishes: Sequence[Wish]
    ) -> Turn:
        """One wish at most, since there is one worker: it gets the next that is named and can be claimed."""
        lost: Sequence[Lease] = []
        while True:
            wished = [replace(wish, task_id=self._watch.names[0]) for wish in wishes if self._watch.names]
            if reports or wished:
                turn = self._store.take_turn(reports, (), wished, limits=self._limits)
                lost, reports = [*lost, *turn.lost], ()
            if not wished:
                return Turn(lost, [], [[] for _ in wishes])
            name = self._watch.names.popleft()
            if turn.leases[0]:
                return Turn(lost, [], turn.leases)
            # Another has it, it is over, or a limit holds it: then it is sent again.
            self._store.take_back([name])
            self._tell(name, False)

    def is_over(self, idle_ms: int) -> bool:
        return self._watch.ended and not self._watch.names
