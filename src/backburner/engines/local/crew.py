"""The crew: the workers of a supervisor, and the runners and zygotes that they work with."""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...clock import Clock
from ...config import Settings
from .attempt import Attempt
from .nursery import Runner, Zygote

log = logging.getLogger("backburner.supervisor")

_LOOK_FOR_CHANGED_FILES_MS = 1000


@dataclass
class Worker:
    """One slot: it runs one task at a time, in a runner that it keeps warm.

    `backlog` are tasks that it has leased ahead; only where tasks are over in milliseconds.
    """

    worker_id: str
    number: int
    queue: str
    runner: Runner | None = None
    attempt: Attempt | None = None
    backlog: deque[Attempt] = field(default_factory=deque)

    @property
    def load(self) -> int:
        return len(self.backlog) + (self.attempt is not None)


class Foreman(Protocol):
    """Who is told what the runners do."""

    def runner_is_ready(self, worker: Worker) -> None: ...

    def runner_said(self, worker: Worker, attempt: Attempt, kind: str, body: dict[str, Any]) -> None: ...

    def runner_wrote(self, worker: Worker, attempt: Attempt, output: list[tuple[str, bytes]]) -> None: ...

    def runner_died(self, worker: Worker, code: int) -> None: ...


class Crew:
    """Keeps the workers in runners: forks, recycles and buries them."""

    def __init__(
        self,
        settings: Settings,
        supervisor_id: str,
        selector: selectors.BaseSelector,
        clock: Clock,
        foreman: Foreman,
    ) -> None:
        self.workers = _make_workers(settings, supervisor_id)
        self._settings = settings
        self._supervisor_id = supervisor_id
        self._selector = selector
        self._clock = clock
        self._foreman = foreman
        self._by_runner: dict[str, Worker] = {}
        self._zygotes: dict[str, Zygote] = {}
        self._retired: list[Zygote] = []
        self._looked_at_files = 0

    def attempts(self) -> Iterator[tuple[Worker, Attempt]]:
        """Every attempt that a worker has, first the one that it is at, then those of its backlog."""
        for worker in self.workers:
            if worker.attempt is not None:
                yield worker, worker.attempt
            for attempt in worker.backlog:
                yield worker, attempt

    # -- getting a runner

    def warm(self, target: str) -> None:
        """Have the app of a target imported before it is needed."""
        self._zygote(target)

    def runner_for(self, worker: Worker, target: str) -> Runner | str:
        """The worker's runner for an app, which may have to get `ready` first; or why there is none."""
        zygote = self._zygote(target)
        if worker.runner is not None and worker.runner.zygote is not zygote:
            self.let_go(worker)
        if zygote.broken is not None:
            self._retire(zygote)  # the next task tries again
            return zygote.broken
        if worker.runner is None:
            worker.runner = self._fork(worker, zygote)
        return worker.runner

    def _fork(self, worker: Worker, zygote: Zygote) -> Runner:
        runner = zygote.fork()
        self._by_runner[runner.name] = worker
        self._selector.register(runner.work, selectors.EVENT_READ, lambda: self._read_messages(runner))
        for stream in (runner.stdout, runner.stderr):
            self._selector.register(stream, selectors.EVENT_READ, lambda: self._read_output(runner))
        return runner

    def _zygote(self, target: str) -> Zygote:
        """The app's zygote; a new one when the app's files have changed or the last one broke."""
        zygote = self._zygotes.get(target)
        now = self._clock.now_ms()
        if zygote is not None and now - self._looked_at_files > _LOOK_FOR_CHANGED_FILES_MS:
            self._looked_at_files = now
            if zygote.files_changed():
                log.info("%s has changed: its runners are replaced", target)
                self._retire(zygote)
                zygote = None
        if zygote is None:
            zygote = self._zygotes[target] = Zygote(target, self._supervisor_id)
            self._selector.register(zygote.control, selectors.EVENT_READ, lambda: self._read_zygote(zygote))
        return zygote

    # -- letting go of runners

    def task_is_over(self, worker: Worker, *, fresh: bool) -> None:
        """Keep the worker's runner for the next task, unless it has served long enough or must be fresh."""
        runner = worker.runner
        if runner is None:
            return
        runner.tasks_done += 1
        used_up = runner.tasks_done >= self._settings.max_tasks_per_runner
        if fresh or used_up or runner.zygote in self._retired:
            runner.signal(signal.SIGKILL)
            self.let_go(worker)

    def let_go(self, worker: Worker) -> None:
        """Part from the worker's runner; idle, it ends by itself."""
        runner, worker.runner = worker.runner, None
        if runner is not None:
            self._by_runner.pop(runner.name, None)
            self._forget(runner)

    def _forget(self, runner: Runner) -> None:
        if not runner.closed:
            for end in (runner.work, runner.stdout, runner.stderr):
                self._unregister(end)
            runner.close()

    def _retire(self, zygote: Zygote) -> None:
        """Its idle runners end now, those at work when their task is over; the last one takes it along."""
        self._zygotes.pop(zygote.target, None)
        self._retired.append(zygote)
        for runner in list(zygote.runners.values()):
            worker = self._by_runner.get(runner.name)
            if worker is not None and (worker.attempt is None or not worker.attempt.sent):
                self.let_go(worker)
        self._bury(zygote)

    def _bury(self, zygote: Zygote) -> None:
        if zygote in self._retired and not zygote.runners:
            self._retired.remove(zygote)
            self._unregister(zygote.control)
            zygote.close()

    def _unregister(self, end: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(end)

    # -- hearing them

    def _read_zygote(self, zygote: Zygote) -> None:
        zygote.read(self._runner_ended)
        if zygote.broken is not None:
            self._unregister(zygote.control)
            for worker, attempt in list(self.attempts()):
                if not attempt.sent and attempt.lease.task.target == zygote.target:
                    self._foreman.runner_is_ready(worker)

    def _read_messages(self, runner: Runner) -> None:
        messages = runner.messages.read()
        if runner.messages.ended:
            self._unregister(runner.work)
        for kind, body in messages:
            worker = self._by_runner.get(runner.name)
            if worker is None:
                return
            if kind == "hello":
                runner.ready = True
                self._foreman.runner_is_ready(worker)
            elif worker.attempt is not None:
                if kind == "done":  # what was written before the last word belongs to this task
                    self._read_output(runner)
                self._foreman.runner_said(worker, worker.attempt, kind, body)

    def _read_output(self, runner: Runner) -> None:
        if runner.closed:
            return
        output, ended = runner.read_output()
        for end in ended:
            self._unregister(end)
        worker = self._by_runner.get(runner.name)
        if output and worker is not None and worker.attempt is not None:
            self._foreman.runner_wrote(worker, worker.attempt, output)

    def _runner_ended(self, runner: Runner, code: int) -> None:
        """Its process is over. What it said and wrote before still counts."""
        worker = self._by_runner.get(runner.name)
        if worker is not None:
            while not runner.closed and not runner.messages.ended:
                self._read_messages(runner)
            self._read_output(runner)
        if worker is not None and worker.runner is runner:
            self.let_go(worker)
            self._foreman.runner_died(worker, code)
        self._forget(runner)
        self._bury(runner.zygote)

    def close(self) -> None:
        """End every process of the crew."""
        for zygote in (*self._zygotes.values(), *self._retired):
            self._unregister(zygote.control)
            zygote.close()


def _make_workers(settings: Settings, supervisor_id: str) -> list[Worker]:
    slots = [name for name, queue in settings.queues.items() for _ in range(queue.workers)]
    suffix = supervisor_id.removeprefix("sup_")
    return [Worker(f"wrk_{suffix}_{number:02d}", number, queue) for number, queue in enumerate(slots)]
