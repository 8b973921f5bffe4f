"""What the store is told of a supervisor's workers."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence

from ...clock import Clock
from ...config import Settings
from ...task import Worker
from .worker_slot import WorkerSlot


class Roster:
    """Tells of each worker that is busy or has news, and of the others so often that they count as alive.

    Many are idle, and each row costs. Of the first it always tells: so the supervisor is heard.
    """

    def __init__(
        self, workers: Sequence[WorkerSlot], supervisor_id: str, clock: Clock, settings: Settings
    ) -> None:
        self._workers = workers
        self._supervisor_id = supervisor_id
        self._clock = clock
        self._host = socket.gethostname()
        self._started_at = clock.now_ms()
        self._tell_all_every_ms = int(settings.supervisor.lease_grace_s * 1000 / 3)
        self._tell_all_at = 0
        self._told: dict[str, int | None] = {}
        self._known: Collection[str] | None = None

    def retire(self, known: Collection[str]) -> None:
        """From now on, tell of these workers alone: no other is there."""
        self._known = known
        self._told.clear()

    def news(self) -> list[Worker]:
        """The workers as the store is to have them, as far as it should hear of them now."""
        now = self._clock.steady_ms()
        if now >= self._tell_all_at:
            self._tell_all_at = now + self._tell_all_every_ms
            self._told.clear()
        return [self._record(worker) for worker in self._workers if self._is_due(worker)]

    def _is_due(self, worker: WorkerSlot) -> bool:
        if self._known is not None and worker.worker_id not in self._known:
            return False
        if worker.attempt is not None:
            self._told.pop(worker.worker_id, None)
            return True
        pid, unknown = worker.runner.pid if worker.runner else None, -1
        if worker.number and self._told.get(worker.worker_id, unknown) == pid:
            return False
        self._told[worker.worker_id] = pid
        return True

    def _record(self, worker: WorkerSlot) -> Worker:
        return Worker(
            worker_id=worker.worker_id,
            supervisor_id=self._supervisor_id,
            host=self._host,
            queue=worker.queue,
            state="busy" if worker.attempt else "idle",
            started_at=self._started_at,
            last_heartbeat=self._clock.now_ms(),
            pid=worker.runner.pid if worker.runner else None,
            current_task_id=worker.attempt.lease.task_id if worker.attempt else None,
        )
