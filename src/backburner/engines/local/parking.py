"""Tasks that wait for an answer beside the workers, which are free for others (docs/decisions/0019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .child_processes import RunnerProcess
from .worker_slot import WorkerSlot


class Parking:
    """The tasks that are parked, each in its runner. At most so many, and none where `most` is 0."""

    def __init__(
        self,
        workers: Sequence[WorkerSlot],
        by_runner: dict[str, WorkerSlot],
        let_go: Callable[[WorkerSlot], None],
        most: int,
    ) -> None:
        """`let_go` parts a worker from its runner; in `by_runner` it is looked up who has which."""
        self._workers = workers
        self._by_runner = by_runner
        self._let_go = let_go
        self._most = most
        self._parked: list[WorkerSlot] = []

    def tasks(self) -> list[WorkerSlot]:
        """What is parked. A task that is over is not any more."""
        if self._parked:
            self._parked = [each for each in self._parked if each.attempt is not None]
        return self._parked

    def park(self, worker: WorkerSlot) -> bool:
        """Let the worker's task wait beside it, so that the worker is free; False when there is no room."""
        runner, attempt = worker.runner, worker.attempt
        if runner is None or attempt is None or len(self.tasks()) >= self._most:
            return False
        beside = WorkerSlot(worker.worker_id, worker.number, worker.queue, parked=True)
        self._parked.append(beside)
        self._move(worker, beside, runner)
        return True

    def free_worker(self, queue: str) -> WorkerSlot | None:
        return next((each for each in self._workers if each.queue == queue and not each.load), None)

    def unpark(self, beside: WorkerSlot) -> WorkerSlot | None:
        """The worker that goes on with the task; None while all of its queue are busy."""
        worker, runner = self.free_worker(beside.queue), beside.runner
        if worker is None or runner is None:
            return None
        self._let_go(worker)
        self._move(beside, worker, runner)
        return worker

    def _move(self, source: WorkerSlot, target: WorkerSlot, runner: RunnerProcess) -> None:
        target.runner, target.attempt = runner, source.attempt
        source.runner = source.attempt = None
        self._by_runner[runner.name] = target
