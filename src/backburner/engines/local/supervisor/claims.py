"""Claims of a supervisor: requests for tasks, and leasing ahead where tasks are quick."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from ....store.protocol import ANYTHING, BatchResult, ClaimRequest
from .attempt import LeasedAttempt, TaskLog
from .batch import Shared, WorkSource
from .workers import Workers, WorkerSlot

#: How long tasks that were leased ahead wait behind a running one before they are handed back.
AHEAD_WAITS_MS = 50

_MOST_PER_CLAIM = 128
#: Where tasks take less than this, workers lease ahead: else they would wait for commits more than they work.
_QUICK_MS = 5.0
_AHEAD_MS = 20.0
_MOST_AHEAD = 20
_WEIGHT = 0.2


class Pace:
    """Moving average of run times, by queue."""

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}

    def add(self, queue: str, ran_ms: int) -> None:
        """Count a task's run time: a slow one fully, a quick one by its weight."""
        average = self._averages.get(queue, 2 * _QUICK_MS)
        weighted = average + _WEIGHT * (ran_ms - average)
        self._averages[queue] = max(weighted, ran_ms) if ran_ms > _QUICK_MS else weighted

    def room(self, queue: str) -> int:
        """Return how many tasks a worker of this queue may hold, the running one included."""
        average = self._averages.get(queue, _QUICK_MS)
        return 1 if average >= _QUICK_MS else 1 + min(_MOST_AHEAD, int(_AHEAD_MS / max(average, 0.5)))


class Claims:
    """Tracks which queues may have tasks, and requests them for workers with room (docs/decisions/0005)."""

    def __init__(self, shared: Shared, source: WorkSource, workers: Workers, pace: Pace) -> None:
        self._source = source
        self._workers = workers
        self._timers = shared.timers
        self._pace = pace
        self._max_log_bytes = shared.settings.limits.max_log_bytes
        self._queues = set(source.slots)
        self._by_id = {worker.worker_id: worker for worker in workers}
        self._by_queue = {queue: [one for one in workers if one.queue == queue] for queue in self._queues}
        self._claimable = set(self._queues)
        self._deep: set[str] = set()  # where the last claim found as many tasks as it asked for

    def notify(self, topics: Collection[str]) -> None:
        """Note which queues the store has notified of new tasks."""
        for queue in self._queues:
            if ANYTHING in topics or f"queue:{queue}" in topics:
                self._claimable.add(queue)

    def add_queues(self, queues: Iterable[str]) -> None:
        """Note queues that the next batch submits tasks to."""
        self._claimable |= self._queues.intersection(queues)

    def stop(self) -> None:
        self._queues.clear()
        self._claimable.clear()

    @property
    def can_go_on(self) -> bool:
        """Return whether a free worker may find a task: a batch can queue some after its own claims."""
        return any(not worker.load for queue in self._claimable for worker in self._available(queue))

    def _available(self, queue: str) -> list[WorkerSlot]:
        """Return the workers of a queue, less those whose place a retired supervisor still uses."""
        return self._by_queue[queue][self._source.taken(queue) :]

    def requests(self, now: int) -> list[ClaimRequest]:
        """Return a request for each queue that may have tasks and has workers with room.

        A worker is named once for each task that it has room for. Free workers come first and get the
        best tasks.
        """
        if self._timers.due("claim", now):
            self._claimable |= self._queues
        requests = []
        for queue in self._claimable:
            room = self._pace.room(queue)
            most = room // 2 if queue in self._deep else 0  # a task or two are not worth leasing ahead
            wanting = [
                (load, worker.worker_id) for worker in self._available(queue) if (load := worker.load) <= most
            ]
            if wanting:
                names = (name for place in range(room) for load, name in wanting if load <= place)
                requests.append(ClaimRequest(queue, list(islice(names, _MOST_PER_CLAIM))))
        return requests

    def take(self, requests: Sequence[ClaimRequest], result: BatchResult, now: int) -> list[WorkerSlot]:
        """Give the leased tasks to their workers; return these."""
        got: dict[str, WorkerSlot] = {}
        # A batch that was refused, and written in parts, has no leases.
        for request, leases in zip(requests, result.leases, strict=False):
            for lease in leases:
                worker = got[lease.worker_id] = self._by_id[lease.worker_id]
                worker.backlog.append(LeasedAttempt(lease, TaskLog(lease.last_log_seq, self._max_log_bytes)))
            if len(leases) == len(request.workers):
                self._deep.add(request.queue)
            else:
                self._deep.discard(request.queue)
                self._claimable.discard(request.queue)
        if any(worker.load > 1 for worker in got.values()):
            self._timers.set("check", now + AHEAD_WAITS_MS)
        if result.ready_in_ms is not None:
            self._timers.set("claim", now + result.ready_in_ms)
        self.notify(result.topics)  # tasks queued after the claims of this batch
        return [*got.values()]

    def late(self, now: int) -> Iterator[tuple[WorkerSlot, LeasedAttempt]]:
        """Yield attempts that were leased ahead and wait behind a task that turns out to be slow."""
        for worker in self._workers:
            running = worker.attempt
            if not worker.backlog or running is None or running.sent_at is None:
                continue
            if now - running.sent_at < AHEAD_WAITS_MS:
                self._timers.set("check", running.sent_at + AHEAD_WAITS_MS)
                continue
            self._pace.add(worker.queue, now - running.sent_at)
            yield from [(worker, attempt) for attempt in worker.backlog]
