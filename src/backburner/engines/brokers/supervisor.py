"""Supervisor program of a Celery or Dramatiq worker process.

The first line on stdin is its configuration; each further line is the name of a queue that a message has rung
for. A queue's name on stdout answers one ring: a claim was made for it. All else goes to stderr. The program
ends when stdin does, after the tasks that run.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ...observability.logging import set_up
from ...settings import Settings
from ...store import open_store
from ...store.protocol import BatchResult, Store, Watch
from ..local.supervisor.batch import Batch, WorkSource
from ..local.supervisor.supervisor import Supervisor

_CHUNK = 1 << 16
#: How often free workers look for tasks without a message: one may be lost, or held by a busy worker.
_POLL_MS = 2000


class RingWatch:
    """Watches a store, and a pipe with the names of queues that messages ring for."""

    def __init__(self, watch: Watch, pipe: int, unread: bytes = b"") -> None:
        """`unread` are bytes that were read from the pipe already."""
        self._watch = watch
        self._pipe = pipe
        self._unread = b""
        #: How many rings of each queue wait for a claim.
        self.rings: Counter[str] = Counter()
        #: Whether the worker process has closed the pipe.
        self.ended = False
        self._take(unread)  # a supervisor begins with a claim, which answers these
        os.set_blocking(pipe, False)
        self._poll = select.epoll()
        for descriptor in (watch.fileno(), pipe):
            self._poll.register(descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def drain(self) -> set[str]:
        return self._watch.drain() | {f"queue:{queue}" for queue in self._read()}

    def wait(self, timeout_s: float | None = None) -> set[str]:
        select.select([self._poll], [], [], timeout_s)
        return self.drain()

    def mend(self) -> None:
        self._watch.mend()

    def close(self) -> None:
        self._poll.close()
        self._watch.close()

    def _read(self) -> list[str]:
        queues = []
        try:
            while not self.ended:
                chunk = os.read(self._pipe, _CHUNK)
                queues += self._take(chunk)
                if not chunk:
                    self.ended = True
                    self._poll.unregister(self._pipe)
        except BlockingIOError:
            pass
        return queues

    def _take(self, chunk: bytes) -> list[str]:
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        queues = [line.decode() for line in lines]
        self.rings.update(queues)
        return queues


class RungQueues(WorkSource):
    """Claims the best ready tasks of some queues when a message rings for them, and now and then."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        slots: Mapping[str, int],
        watch: RingWatch,
        answer: Callable[[str, int], object],
    ) -> None:
        """`answer` is called with a queue and how many of its rings are done."""
        self.slots = slots
        self._store = store
        self._settings = settings
        self._watch = watch
        self._answer = answer

    def commit_batch(self, batch: Batch) -> BatchResult:
        """A ring that finds every worker of its queue busy waits for the next claim."""
        ended = self._watch.ended
        claims = [] if ended else batch.claims
        fair, limits = bool(self._settings.fair_share), self._settings.limits.of_running
        result = self._store.commit_batch(batch.reports, (), claims, fair=fair, limits=limits)
        if ended:
            return replace(result, leases=[[] for _ in batch.claims], ready_in_ms=None)
        for claim, leases in zip(claims, result.leases, strict=True):
            rings = self._watch.rings[claim.queue]
            done = rings if len(leases) < len(claim.workers) else min(rings, len(leases))
            self._watch.rings[claim.queue] -= done
            self._answer(claim.queue, done)
        due = [_POLL_MS] if result.ready_in_ms is None else [_POLL_MS, result.ready_in_ms]
        return replace(result, ready_in_ms=min(due))

    def is_over(self, idle_ms: int) -> bool:
        return self._watch.ended


def main() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a thread of Dramatiq may have blocked signals
    answers = os.dup(1)
    os.dup2(2, 1)
    first, unread = _first_line(0)
    config = json.loads(first)
    settings = Settings.from_json(config["settings"])
    set_up(settings.log)

    def answer(queue: str, rings: int) -> None:
        try:
            os.write(answers, f"{queue}\n".encode() * rings)
        except BrokenPipeError:
            logging.getLogger("backburner.worker").info("the worker process has ended")

    store = open_store(settings.store, synchronous=settings.sqlite.synchronous)
    try:
        watch = RingWatch(store.watch(steering=True), 0, unread)
        source = RungQueues(store, settings, config["slots"], watch, answer)
        supervisor_id = f"sup_{secrets.token_hex(4)}_{secrets.token_hex(4)}"
        supervisor = Supervisor(store, settings, Path(settings.data_dir), supervisor_id, source, watch)
        supervisor.run(warm=[(settings.target, "")] if settings.target else [])
    finally:
        store.close()


def _first_line(descriptor: int) -> tuple[bytes, bytes]:
    """Return the first line, and the bytes that were read after it."""
    read = b""
    while b"\n" not in read and (chunk := os.read(descriptor, _CHUNK)):
        read += chunk
    line, _, rest = read.partition(b"\n")
    return line, rest


if __name__ == "__main__":
    main()
