"""Workers of a supervisor: their slots, reports and paused tasks, and the runner processes they use."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....core.task import Task, TaskError, Worker
from ....core.times import Clock
from ....settings import Settings
from ....tools.execution import LIFE_ENDS_S
from ..isolation import Isolation
from ..isolation.confinement import Confinement
from ..processes import linux
from ..processes.children import Origin, RunnerProcess, ZygoteProcess, Zygotes, app_not_loaded
from ..processes.messages import Done, InvalidMessage, parse, parse_broken, parse_hello
from .attempt import LeasedAttempt
from .batch import Shared

if TYPE_CHECKING:
    from .dispatch import Dispatch

log = logging.getLogger("backburner.supervisor")

#: How many idle runners of a queue stay for its next tasks.
#: Paused tasks of a supervisor: each keeps its process. Further ones keep their workers too.
MOST_PAUSED = 32
_KEPT_WARM = max(4, os.cpu_count() or 1)

#: How often to check whether a runner gets ready in time.
CHECK_RUNNER_MS = 500


@dataclass
class WorkerSlot:
    """One worker: runs one task at a time, in a runner that it keeps for the next one.

    `backlog` holds attempts that were leased ahead, where tasks take milliseconds. A `paused` slot is no
    worker, but a task that waits for an answer in its runner.
    """

    worker_id: str
    number: int
    queue: str
    runner: RunnerProcess | None = None
    attempt: LeasedAttempt | None = None
    backlog: deque[LeasedAttempt] = field(default_factory=deque)
    paused: bool = False

    @property
    def in_logs(self) -> dict[str, Any]:
        """The `extra` of log records about it."""
        return {} if self.attempt is None else self.attempt.in_logs

    @property
    def load(self) -> int:
        """Return the number of attempts that the worker holds."""
        return len(self.backlog) + (self.attempt is not None)

    def attempts(self) -> list[LeasedAttempt]:
        """Return the running attempt, then the backlog."""
        return [*self.backlog] if self.attempt is None else [self.attempt, *self.backlog]

    def remove(self, attempt: LeasedAttempt) -> None:
        if attempt is self.attempt:
            self.attempt = None
        else:
            self.backlog.remove(attempt)


class WorkerReports:
    """Worker records for the store: busy and changed ones always, idle ones just often enough.

    Many workers are idle, and each row costs. The first one is always reported, for the supervisor itself.
    """

    def __init__(
        self, workers: Sequence[WorkerSlot], supervisor_id: str, clock: Clock, settings: Settings
    ) -> None:
        self._workers = workers
        self._supervisor_id = supervisor_id
        self._clock = clock
        self._host = socket.gethostname()
        self._started_at = clock.now_ms()
        self._report_all_every_ms = int(settings.supervisor.lease_grace_s * 1000 / 3)
        self._report_all_at = 0
        self._reported: dict[str, int | None] = {}
        self._only: Collection[str] | None = None

    def retire(self, only: Collection[str]) -> None:
        """Report only these workers from now on."""
        self._only = only
        self._reported.clear()

    def due(self) -> list[Worker]:
        """Return the records that the store should get now."""
        now = self._clock.steady_ms()
        if now >= self._report_all_at:
            self._report_all_at = now + self._report_all_every_ms
            self._reported.clear()
        return [self._record(worker) for worker in self._workers if self._is_due(worker)]

    def _is_due(self, worker: WorkerSlot) -> bool:
        if self._only is not None and worker.worker_id not in self._only:
            return False
        if worker.attempt is not None:
            self._reported.pop(worker.worker_id, None)
            return True
        pid, unknown = worker.runner.pid if worker.runner else None, -1
        if worker.number and self._reported.get(worker.worker_id, unknown) == pid:
            return False
        self._reported[worker.worker_id] = pid
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


class Workers:
    """The workers of a supervisor, and their runners: forks these, keeps them warm, and ends them."""

    #: Handles the events of runners.
    dispatch: Dispatch

    def __init__(self, slots: Mapping[str, int], shared: Shared, isolation: Isolation) -> None:
        """`slots` says how many workers each queue gets."""
        settings, clock = shared.settings, shared.clock
        self._watchdog = shared.watchdog
        self._slots = _make_slots(slots, shared.supervisor_id)
        self._max_tasks_per_runner = settings.supervisor.max_tasks_per_runner
        self.reports = WorkerReports(self._slots, shared.supervisor_id, clock, settings)
        self._selector = shared.selector
        self._clock = clock
        self._isolation = isolation
        self._by_runner: dict[str, WorkerSlot] = {}
        # The next task of the worker would run as the same user.
        self._most_paused = 0 if settings.isolation.users else MOST_PAUSED
        self._paused: list[WorkerSlot] = []
        self._zygotes = Zygotes(settings, shared.supervisor_id, clock, shared.deadline, shared.data_dir)
        self._spawns = settings.isolation.runners == "spawn"
        self._not_ours = linux.children()
        self._import_timeout_ms = int(settings.supervisor.import_timeout_s * 1000)
        self._ready_ms = int(settings.supervisor.lease_grace_s * 1000)
        self._idle_exit_ms = int(settings.supervisor.runner_idle_exit_s * 1000)
        linux.adopt_orphans()

    def __iter__(self) -> Iterator[WorkerSlot]:
        return iter(self._slots)

    def busy(self) -> list[WorkerSlot]:
        """Return the slots that hold attempts, paused ones included."""
        return [each for each in self._slots if each.attempt or each.backlog] + self.paused()

    def paused(self) -> list[WorkerSlot]:
        """Return the slots of tasks that wait for an answer, each in its runner, without a worker."""
        if self._paused:
            self._paused = [each for each in self._paused if each.attempt is not None]
        return self._paused

    def pause(self, worker: WorkerSlot) -> bool:
        """Pause the worker's task, so that the worker is free; return False when there is no room."""
        if worker.runner is None or worker.attempt is None or len(self.paused()) >= self._most_paused:
            return False
        slot = WorkerSlot(worker.worker_id, worker.number, worker.queue, paused=True)
        self._paused.append(slot)
        self._move(worker.runner, worker, slot)
        return True

    def resume(self, slot: WorkerSlot) -> WorkerSlot | None:
        """Give a paused task to a free worker and return it; None while all of its queue are busy."""
        worker = self.free_worker(slot.queue)
        if worker is None or slot.runner is None:
            return None
        self.release(worker)
        self._move(slot.runner, slot, worker)
        return worker

    def _move(self, runner: RunnerProcess, source: WorkerSlot, target: WorkerSlot) -> None:
        target.runner, target.attempt = runner, source.attempt
        source.runner = source.attempt = None
        self._by_runner[runner.name] = target

    def free_worker(self, queue: str) -> WorkerSlot | None:
        return next((each for each in self._slots if each.queue == queue and not each.load), None)

    def attempts(self) -> list[tuple[WorkerSlot, LeasedAttempt]]:
        """Return every attempt, with the slot that holds it."""
        return [(worker, attempt) for worker in self.busy() for attempt in worker.attempts()]

    def retire(self) -> None:
        """Report only busy workers to the store from now on."""
        self.reports.retire({attempt.lease.worker_id for _, attempt in self.attempts()})

    def send_deadline(self) -> None:
        """Send the lease deadline to every zygote."""
        for zygote in self._zygotes:
            zygote.send_deadline()

    # -- getting a runner

    def warm(self, target: str, launch: str) -> None:
        """Import the app of a target before it is needed."""
        self._zygote(Origin(target, launch, anew=self._spawns))

    def runner_for(self, worker: WorkerSlot, task: Task) -> RunnerProcess | TaskError:
        """Return the worker's runner for a task, which may not be `ready` yet; or why there is none.

        It has never served another owner.
        """
        zygote, runner, tenant = self._zygote(Origin.of(task)), worker.runner, self._isolation.tenant(task)
        if runner is not None and (runner.zygote is not zygote or runner.tenant != tenant):
            self.release(worker)
        if zygote.broken is not None:
            return zygote.broken
        if worker.runner is None:
            try:
                confinement = self._isolation.confine(task, worker.number)
            except OSError as error:
                return TaskError("not_confined", f"The folder of the task cannot be prepared: {error}")
            worker.runner = self._fork(worker, zygote, tenant, confinement)
        return worker.runner

    def _fork(
        self, worker: WorkerSlot, zygote: ZygoteProcess, tenant: str, confinement: Confinement | None
    ) -> RunnerProcess:
        runner = zygote.fork(tenant, confinement, self._send_rest_later)
        runner.idle_since = self._clock.steady_ms()
        self._by_runner[runner.name] = worker
        self._selector.register(runner.work, selectors.EVENT_READ, lambda: self._read_messages(runner))
        for stream in (runner.stdout, runner.stderr):
            self._selector.register(stream, selectors.EVENT_READ, lambda: self._read_output(runner))
        return runner

    def _send_rest_later(self, runner: RunnerProcess, end: socket.socket) -> None:
        """Send the rest when the runner's socket has room."""
        copy = end.dup()  # the socket itself is registered already, for reading

        def send_rest() -> None:
            if not runner.send_rest(end):
                self._unregister(copy)
                copy.close()

        self._selector.register(copy, selectors.EVENT_WRITE, send_rest)

    def _zygote(self, origin: Origin) -> ZygoteProcess:
        """Return the zygote of an origin; start one if there is none, or the app's files have changed."""
        zygote = self._zygotes.of(origin)
        if zygote is not None and zygote.files_changed():
            log.info("%s has changed; replacing its runners", origin.target)
            self._retire(zygote)
            zygote = None
        if zygote is None or (zygote.gone and zygote.broken is None):
            zygote = self._zygotes.start(origin)
            self._selector.register(zygote.control, selectors.EVENT_READ, lambda: self._read_zygote(zygote))
            for other in self._zygotes.too_many():
                self._retire(other)
        return zygote

    # -- ending runners

    def task_ended(self, worker: WorkerSlot, *, fresh: bool) -> None:
        """Keep the worker's runner for the next task, unless it is used up, changed, or must be `fresh`."""
        runner = worker.runner
        if runner is None:
            return
        self._watchdog.forget(runner)
        runner.tasks_done += 1
        runner.idle_since = self._clock.steady_ms()
        used_up = runner.tasks_done >= self._max_tasks_per_runner
        alone = fresh or worker.paused or self._isolation.for_each_task
        if alone or used_up or runner.changed:
            runner.kill()
            self.release(worker)
        elif runner.zygote in self._zygotes.retired:
            self.release(worker)

    def is_last_task_of(self, runner: RunnerProcess) -> bool:
        """Return whether the runner gets no other task after the next."""
        return self._isolation.for_each_task or runner.tasks_done + 1 >= self._max_tasks_per_runner

    def end_idle(self, now: int) -> None:
        """Release runners that have been idle for long, except a few of each queue."""
        idle: Counter[str] = Counter()
        for worker in self._slots:  # the first that is free gets the next task
            if worker.runner is not None and not worker.load:
                idle[worker.queue] += 1
                too_many = self._idle_exit_ms and idle[worker.queue] > _KEPT_WARM
                if too_many and now - worker.runner.idle_since >= self._idle_exit_ms:
                    self.release(worker)

    def release(self, worker: WorkerSlot) -> None:
        """Part from the worker's runner; an idle one ends by itself, after its lifespan."""
        runner, worker.runner = worker.runner, None
        if runner is not None:
            self._by_runner.pop(runner.name, None)
            self._forget(runner)
            if runner.pid is not None:
                self._watchdog.kill_at(runner, self._clock.steady_ms() + int(LIFE_ENDS_S * 1000))

    def kill_at(self, worker: WorkerSlot, deadline: int) -> None:
        """Kill the worker's runner at that time, unless its task is over."""
        if worker.runner is not None:
            self._watchdog.kill_at(worker.runner, deadline)

    def end_late_runner(self, worker: WorkerSlot, now: int) -> None:
        """End the worker's runner, or the zygote that has not forked it, if it should be ready by now."""
        runner = worker.runner
        if runner is None or runner.ready:
            return
        if runner.requested_at is None:
            self._end_late_import(runner.zygote, now)
        elif runner.zygote.origin.anew:
            if now - runner.requested_at >= self._import_timeout_ms:
                self._end_without_app(worker, runner, self._import_took_too_long())
        elif now - runner.requested_at >= self._ready_ms:
            text = "a runner of %s was not ready within %d ms"
            log.warning(text, runner.zygote.target, self._ready_ms, extra=worker.in_logs)
            runner.requested_at = now
            if runner.pid is not None:
                runner.kill()
            else:
                runner.zygote.kill()

    def _end_late_import(self, zygote: ZygoteProcess, now: int) -> None:
        """End a zygote whose app takes too long to import, or has changed meanwhile."""
        if zygote.files_changed():
            log.info("%s has changed during its import; importing it again", zygote.target)
            zygote.kill()
        elif now - zygote.started_at >= self._import_timeout_ms:
            zygote.broken = app_not_loaded(zygote.target, self._import_took_too_long())
            log.warning("%s", zygote.broken.message)
            zygote.kill()

    def _import_took_too_long(self) -> str:
        limit_s = self._import_timeout_ms / 1000
        return f"its import took longer than {limit_s:g} s (supervisor.import_timeout_s)"

    def _end_without_app(
        self, worker: WorkerSlot, runner: RunnerProcess, reason: str, details: str = ""
    ) -> None:
        """End a runner that could not import the app."""
        error = app_not_loaded(runner.zygote.target, reason, details)
        log.warning("%s", error.message, extra=worker.in_logs)
        runner.kill()
        self.release(worker)
        self.dispatch.app_not_loaded(worker, error)

    def _forget(self, runner: RunnerProcess) -> None:
        if not runner.closed:
            for end in (runner.work, runner.stdout, runner.stderr):
                self._unregister(end)
            runner.close()
            self._isolation.release(runner.confinement)

    def _retire(self, zygote: ZygoteProcess) -> None:
        """Release its idle runners now, the others after their task; it ends with the last one."""
        self._zygotes.retire(zygote)
        for runner in list(zygote.runners.values()):
            worker = self._by_runner.get(runner.name)
            if worker is not None and (worker.attempt is None or not worker.attempt.sent):
                self.release(worker)
        self._end_if_unused(zygote)

    def _end_if_unused(self, zygote: ZygoteProcess) -> None:
        if zygote in self._zygotes.retired and not zygote.runners:
            self._zygotes.retired.remove(zygote)
            self._unregister(zygote.control)
            zygote.close()

    def _unregister(self, end: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(end)

    # -- reading from zygotes and runners

    def _read_zygote(self, zygote: ZygoteProcess) -> None:
        zygote.read(self._runner_ended)
        if zygote.gone:
            zygote.kill()  # its runners die with it; their orphans become our children
            others = {other.pid for other in self._zygotes} - {zygote.pid}
            linux.end_children(spare=others | self._not_ours)
            while zygote.runners:
                self._runner_ended(zygote.runners.popitem()[1], -signal.SIGKILL)
            self._retire(zygote)
        else:
            for runner in [*zygote.runners.values()]:
                self._mark_ready(runner)
            self._end_if_unused(zygote)

    def _mark_ready(self, runner: RunnerProcess) -> None:
        """Send work to a runner that has said hello and whose pid is known; either may come first."""
        worker = self._by_runner.get(runner.name)
        if worker is not None and runner.greeted and runner.pid is not None and not runner.ready:
            runner.ready = True
            self.dispatch.send_if_ready(worker)

    def _read_messages(self, runner: RunnerProcess) -> None:
        try:
            messages = runner.messages.read()
            if runner.messages.ended:
                self._unregister(runner.work)
            for kind, body in messages:
                self._handle_message(runner, kind, body)
        except InvalidMessage as error:
            self._end_misbehaving(runner, str(error))
        except Exception:  # our fault, but no message of a runner may end the loop
            text = "a message from a runner of %s could not be handled"
            log.exception(text, runner.zygote.target, extra=self._in_logs(runner))
            self._end_misbehaving(runner, "its message could not be handled; see the supervisor's log")

    def _handle_message(self, runner: RunnerProcess, kind: str, body: dict[str, Any]) -> None:
        worker = self._by_runner.get(runner.name)
        if worker is None or runner.messages.ended:
            return
        attempt = worker.attempt
        if kind == "hello" and not runner.greeted:
            if (files := parse_hello(body, runner.zygote.origin.anew)) is not None:
                runner.zygote.watch(files)
            runner.greeted = True
            self._mark_ready(runner)
        elif kind == "broken" and not runner.greeted and runner.zygote.origin.anew:
            broken = parse_broken(body)
            self._end_without_app(worker, runner, broken.broken, broken.details)
        elif attempt is None or not attempt.sent:
            raise InvalidMessage("it sent a message without having a task")
        else:
            message = parse(kind, body, attempt.lease)
            if isinstance(message, Done):  # output before the final message belongs to this task
                self._read_output(runner, everything=True)
                runner.changed = runner.changed or message.changed
            self.dispatch.message(worker, attempt, message)

    def _in_logs(self, runner: RunnerProcess) -> dict[str, Any]:
        worker = self._by_runner.get(runner.name)
        return {} if worker is None else worker.in_logs

    def _end_misbehaving(self, runner: RunnerProcess, reason: str) -> None:
        """Kill a runner, and read nothing more from it."""
        log.warning("killing a runner of %s: %s", runner.zygote.target, reason, extra=self._in_logs(runner))
        runner.messages.dry = runner.messages.ended = True
        self._unregister(runner.work)
        runner.kill()
        worker = self._by_runner.get(runner.name)
        if worker is not None and worker.attempt is not None and worker.attempt.sent:
            self.dispatch.runner_misbehaved(worker.attempt, reason)
        elif worker is not None:
            self.release(worker)
            self.dispatch.runner_exited(worker, -signal.SIGKILL)

    def _read_output(self, runner: RunnerProcess, *, everything: bool = False) -> None:
        if runner.closed:
            return
        output, ended = runner.read_output(everything=everything)
        for end in ended:  # the tool has closed it
            self._unregister(end)
            runner.changed = True
        worker = self._by_runner.get(runner.name)
        if output and worker is not None and worker.attempt is not None:
            self.dispatch.output(worker.attempt, output)

    def _runner_ended(self, runner: RunnerProcess, code: int) -> None:
        """Handle the end of a runner's process. Its messages and output until then still count."""
        self._watchdog.forget(runner)
        runner.pid, runner.changed = None, True
        worker = self._by_runner.get(runner.name)
        if worker is not None:
            runner.messages.dry = False
            while not runner.closed and not runner.messages.dry:
                self._read_messages(runner)
            self._read_output(runner, everything=True)
        if worker is not None and worker.runner is runner:
            self.release(worker)
            self.dispatch.runner_exited(worker, code)
        self._forget(runner)
        self._end_if_unused(runner.zygote)

    def close(self) -> None:
        """End every process; idle runners first, which end their lifespans."""
        for worker in self._slots:
            self.release(worker)
        self._zygotes.await_ends(self._runner_ended, LIFE_ENDS_S)
        for zygote in self._zygotes:
            self._unregister(zygote.control)
            zygote.close()
            for runner in zygote.runners.values():
                self._isolation.release(runner.confinement)
        linux.end_children(spare=self._not_ours)


def _make_slots(slots: Mapping[str, int], supervisor_id: str) -> list[WorkerSlot]:
    queues = [queue for queue, count in slots.items() for _ in range(count)]
    suffix = supervisor_id.removeprefix("sup_")
    return [WorkerSlot(f"wrk_{suffix}_{number:02d}", number, queue) for number, queue in enumerate(queues)]
