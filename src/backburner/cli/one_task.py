"""A supervisor for one task: its store shows it that task and nothing else."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..store import Lease, QueueDepth, Store
    from ..task import Worker
    from .place import Place


class OneTaskStore:
    """A store in which one task can be claimed, once. Everything else goes to the real one.

    Its user keeps no house and takes over from nobody: there may be a supervisor on this host.
    """

    def __init__(self, store: Store, task_id: str, queue: str) -> None:
        self._store = store
        self._task_id = task_id
        self._queue = queue
        self.lease: Lease | None = None
        self._claimed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim(self, queues: Sequence[str], workers: Sequence[str], *, fair: bool = False) -> list[Lease]:
        if self._claimed:
            return []
        self.lease = self._store.claim_task(self._task_id, workers[0])
        self._claimed = True
        return [] if self.lease is None else [self.lease]

    def queue_depths(self) -> list[QueueDepth]:
        """There is something to do until the task was claimed; then an idle supervisor may go."""
        from ..store import QueueDepth

        return [] if self._claimed else [QueueDepth(self._queue, queued=1, leased=0)]

    def workers(self) -> list[Worker]:
        return []

    def keep(self, holder: str, lease_s: float) -> bool:
        return False


def run_one(place: Place, task_id: str) -> bool:
    """Lease the task and run one attempt of it; whether it could be leased. Raises TaskNotFound."""
    from ..config import Queue
    from ..engines.local.supervisor import Supervisor

    task = place.service.status(task_id, owner=None).task
    settings = dataclasses.replace(
        place.settings, queues={task.queue: Queue(workers=1)}, default_queue=task.queue, idle_exit_s=0.001
    )
    store = OneTaskStore(place.store, task_id, task.queue)
    supervisor_id = f"sup_{secrets.token_hex(4)}_{secrets.token_hex(4)}"
    Supervisor(cast("Store", store), settings, place.data_dir, supervisor_id, targets=(task.target,)).run()
    return store.lease is not None
