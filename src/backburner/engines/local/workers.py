"""The workers of a supervisor, and the runner and zygote processes that they work with."""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...clock import Clock
from ...config import Settings
from ...task import TaskError, Worker
from . import linux
from .child_processes import RunnerProcess, ZygoteProcess
from .leased_attempt import LeasedAttempt

log = logging.getLogger("backburner.supervisor")


@dataclass
class WorkerSlot:
    """One worker: it runs one task at a time, in a runner that it keeps for the next one.

    `backlog` are tasks that it has leased ahead; only where tasks are over in milliseconds.
    """

    worker_id: str
    number: int
    queue: str
    runner: RunnerProcess | None = None
    attempt: LeasedAttempt | None = None
    backlog: deque[LeasedAttempt] = field(default_factory=deque)

    @property
    def load(self) -> int:
        """How many tasks it holds."""
        return len(self.backlog) + (self.attempt is not None)

    def attempts(self) -> list[LeasedAttempt]:
        """What it holds: first the one that it is at, then its backlog."""
        return [*self.backlog] if self.attempt is None else [self.attempt, *self.backlog]

    def part_from(self, attempt: LeasedAttempt) -> None:
        """Hold this attempt no longer."""
        if attempt is self.attempt:
            self.attempt = None
        else:
            self.backlog.remove(attempt)


class RunnerListener(Protocol):
    """Who is told what the runners do."""

    def runner_is_ready(self, worker: WorkerSlot) -> None:
        """It can be given work."""
        ...

    def runner_said(
        self, worker: WorkerSlot, attempt: LeasedAttempt, kind: str, body: dict[str, Any]
    ) -> None:
        """It sent a message about its attempt."""
        ...

    def runner_wrote(
        self, worker: WorkerSlot, attempt: LeasedAttempt, output: list[tuple[str, bytes]]
    ) -> None:
        """It, or a child of it, wrote to a standard stream: names of streams, and what was written."""
        ...

    def runner_died(self, worker: WorkerSlot, code: int) -> None:
        """Its process ended, with this exit code, or minus the signal's number."""
        ...


class Workers:
    """The workers, and the runners for them: has these forked, keeps them warm, and ends them."""

    def __init__(
        self,
        slots: Mapping[str, int],
        settings: Settings,
        supervisor_id: str,
        selector: selectors.BaseSelector,
        clock: Clock,
    ) -> None:
        """`slots` says how many workers each queue gets."""
        self._slots = _make_slots(slots, supervisor_id)
        self._max_tasks_per_runner = settings.supervisor.max_tasks_per_runner
        self._supervisor_id = supervisor_id
        self._selector = selector
        self._clock = clock
        self._started_at = clock.now_ms()
        self._by_runner: dict[str, WorkerSlot] = {}
        self._zygotes: dict[str, ZygoteProcess] = {}
        self._retired: list[ZygoteProcess] = []
        self._not_ours = linux.children()
        #: How long a runner may take to get ready.
        self.patience_ms = int(settings.supervisor.lease_grace_s * 1000)
        linux.adopt_orphans()

    def report_to(self, listener: RunnerListener) -> None:
        """Tell this one what the runners do; to be said before there is a runner."""
        self._listener = listener

    def __iter__(self) -> Iterator[WorkerSlot]:
        return iter(self._slots)

    def attempts(self) -> list[tuple[WorkerSlot, LeasedAttempt]]:
        """Every attempt, with the worker that holds it."""
        return [(worker, attempt) for worker in self._slots for attempt in worker.attempts()]

    def records(self, now: int) -> list[Worker]:
        """The workers as a store has them."""
        host = socket.gethostname()
        return [
            Worker(
                worker_id=worker.worker_id,
                supervisor_id=self._supervisor_id,
                host=host,
                queue=worker.queue,
                state="busy" if worker.attempt else "idle",
                started_at=self._started_at,
                last_heartbeat=now,
                pid=worker.runner.pid if worker.runner else None,
                current_task_id=worker.attempt.lease.task_id if worker.attempt else None,
            )
            for worker in self._slots
        ]

    # -- getting a runner

    def warm(self, target: str) -> None:
        """Have the app of a target imported before it is needed."""
        self._zygote(target)

    def runner_for(self, worker: WorkerSlot, target: str) -> RunnerProcess | TaskError:
        """The worker's runner for an app, which may have to get `ready` first; or why there is none."""
        zygote = self._zygote(target)
        if worker.runner is not None and worker.runner.zygote is not zygote:
            self.let_go(worker)
        if zygote.broken is not None:
            return zygote.broken
        if worker.runner is None:
            worker.runner = self._fork(worker, zygote)
        return worker.runner

    def _fork(self, worker: WorkerSlot, zygote: ZygoteProcess) -> RunnerProcess:
        runner = zygote.fork()
        self._by_runner[runner.name] = worker
        self._selector.register(runner.work, selectors.EVENT_READ, lambda: self._read_messages(runner))
        for stream in (runner.stdout, runner.stderr):
            self._selector.register(stream, selectors.EVENT_READ, lambda: self._read_output(runner))
        return runner

    def _zygote(self, target: str) -> ZygoteProcess:
        """The app's zygote; a new one when the app's files have changed or the last one went away."""
        zygote = self._zygotes.get(target)
        if zygote is not None and zygote.files_changed():
            log.info("%s has changed: its runners are replaced", target)
            self._retire(zygote)
            zygote = None
        if zygote is None or (zygote.gone and zygote.broken is None):
            zygote = self._zygotes[target] = ZygoteProcess(target, self._supervisor_id, self._clock)
            self._selector.register(zygote.control, selectors.EVENT_READ, lambda: self._read_zygote(zygote))
        return zygote

    # -- letting go of runners

    def task_is_over(self, worker: WorkerSlot, *, fresh: bool) -> None:
        """Keep the worker's runner for the next task, unless it has served long enough or must be fresh."""
        runner = worker.runner
        if runner is None:
            return
        runner.tasks_done += 1
        used_up = runner.tasks_done >= self._max_tasks_per_runner
        if fresh or used_up or runner.spent or runner.zygote in self._retired:
            runner.kill()
            self.let_go(worker)

    def let_go(self, worker: WorkerSlot) -> None:
        """Part from the worker's runner; idle, it ends by itself."""
        runner, worker.runner = worker.runner, None
        if runner is not None:
            self._by_runner.pop(runner.name, None)
            self._forget(runner)

    def end_late_runner(self, worker: WorkerSlot, now: int) -> None:
        """End the worker's runner, or the zygote that did not even fork it, if it should be ready by now."""
        runner = worker.runner
        if runner is None or runner.ready or runner.requested_at is None:
            return
        if now - runner.requested_at >= self.patience_ms:
            log.warning("a runner of %s was not ready within %d ms", runner.zygote.target, self.patience_ms)
            runner.requested_at = now
            if runner.pid is not None:
                runner.kill()
            else:
                runner.zygote.kill()

    def _forget(self, runner: RunnerProcess) -> None:
        if not runner.closed:
            for end in (runner.work, runner.stdout, runner.stderr):
                self._unregister(end)
            runner.close()

    def _retire(self, zygote: ZygoteProcess) -> None:
        """Its idle runners end now, those at work when their task is over; the last one takes it along."""
        if self._zygotes.get(zygote.target) is zygote:
            del self._zygotes[zygote.target]
        if zygote not in self._retired:
            self._retired.append(zygote)
        for runner in list(zygote.runners.values()):
            worker = self._by_runner.get(runner.name)
            if worker is not None and (worker.attempt is None or not worker.attempt.sent):
                self.let_go(worker)
        self._bury(zygote)

    def _bury(self, zygote: ZygoteProcess) -> None:
        if zygote in self._retired and not zygote.runners:
            self._retired.remove(zygote)
            self._unregister(zygote.control)
            zygote.close()

    def _unregister(self, end: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(end)

    # -- hearing them

    def _read_zygote(self, zygote: ZygoteProcess) -> None:
        zygote.read(self._runner_ended)
        if zygote.gone:
            zygote.kill()  # its runners die with it, and we are the parent of what they leave behind
            others = {other.pid for other in (*self._zygotes.values(), *self._retired)} - {zygote.pid}
            linux.end_children(spare=others | self._not_ours)
            while zygote.runners:
                self._runner_ended(zygote.runners.popitem()[1], -signal.SIGKILL)
            self._retire(zygote)
        else:
            self._bury(zygote)

    def _read_messages(self, runner: RunnerProcess) -> None:
        try:
            messages = runner.messages.read()
        except ValueError:  # the tool has written to what is not its own
            log.warning("a runner of %s cannot be understood", runner.zygote.target)
            runner.kill()
            messages, runner.messages.dry, runner.messages.ended = [], True, True
        if runner.messages.ended:
            self._unregister(runner.work)
        for kind, body in messages:
            worker = self._by_runner.get(runner.name)
            if worker is None:
                return
            if kind == "hello":
                runner.ready = True
                self._listener.runner_is_ready(worker)
            elif worker.attempt is not None:
                if kind == "done":  # what was written before the last word belongs to this task
                    self._read_output(runner, everything=True)
                    runner.spent = runner.spent or body.get("spent", False)
                self._listener.runner_said(worker, worker.attempt, kind, body)

    def _read_output(self, runner: RunnerProcess, *, everything: bool = False) -> None:
        if runner.closed:
            return
        output, ended = runner.read_output(everything=everything)
        for end in ended:  # the tool has closed it
            self._unregister(end)
            runner.spent = True
        worker = self._by_runner.get(runner.name)
        if output and worker is not None and worker.attempt is not None:
            self._listener.runner_wrote(worker, worker.attempt, output)

    def _runner_ended(self, runner: RunnerProcess, code: int) -> None:
        """Its process is over. What it said and wrote before still counts."""
        runner.pid, runner.spent = None, True
        worker = self._by_runner.get(runner.name)
        if worker is not None:
            runner.messages.dry = False
            while not runner.closed and not runner.messages.dry:
                self._read_messages(runner)
            self._read_output(runner, everything=True)
        if worker is not None and worker.runner is runner:
            self.let_go(worker)
            self._listener.runner_died(worker, code)
        self._forget(runner)
        self._bury(runner.zygote)

    def close(self) -> None:
        """End every process."""
        for zygote in (*self._zygotes.values(), *self._retired):
            self._unregister(zygote.control)
            zygote.close()
        linux.end_children(spare=self._not_ours)


def _make_slots(slots: Mapping[str, int], supervisor_id: str) -> list[WorkerSlot]:
    queues = [queue for queue, count in slots.items() for _ in range(count)]
    suffix = supervisor_id.removeprefix("sup_")
    return [WorkerSlot(f"wrk_{suffix}_{number:02d}", number, queue) for number, queue in enumerate(queues)]
