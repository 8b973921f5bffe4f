"""The workers of a supervisor, and the runner and zygote processes that they work with."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...clock import Clock
from ...config import Settings
from ...execution import LIFE_ENDS_S
from ...task import Task, TaskError
from . import linux
from .child_processes import Origin, RunnerProcess, ZygoteProcess, app_not_loaded
from .confinement import Confinement
from .hold import Hold
from .isolation import Isolation
from .leased_attempt import LeasedAttempt
from .parking import Parking
from .roster import Roster
from .runner_messages import Done, parse, parse_broken, parse_hello
from .watchdog import Watchdog
from .wire import NotAMessage
from .worker_slot import RunnerListener, WorkerSlot
from .zygotes import Zygotes

log = logging.getLogger("backburner.supervisor")

#: So many idle runners of a queue stay for its next tasks.
_KEPT_WARM = max(4, os.cpu_count() or 1)

#: How often to look whether a runner gets ready in time.
LOOK_FOR_RUNNER_MS = 500


class Workers:
    """The workers, and the runners for them: has these forked, keeps them warm, and ends them."""

    def __init__(
        self,
        slots: Mapping[str, int],
        settings: Settings,
        supervisor_id: str,
        selector: selectors.BaseSelector,
        clock: Clock,
        hold: Hold,
        watchdog: Watchdog,
        isolation: Isolation,
        data_dir: Path,
    ) -> None:
        """`slots` says how many workers each queue gets."""
        self._watchdog = watchdog
        self._slots = _make_slots(slots, supervisor_id)
        self._max_tasks_per_runner = settings.supervisor.max_tasks_per_runner
        self.roster = Roster(self._slots, supervisor_id, clock, settings)
        self._selector = selector
        self._clock = clock
        self._isolation = isolation
        self._by_runner: dict[str, WorkerSlot] = {}
        # Whoever has the worker next would have the same user.
        most_parked = 0 if settings.isolation.users else settings.supervisor.max_parked
        self.parking = Parking(self._slots, self._by_runner, self.let_go, most_parked)
        self._zygotes = Zygotes(settings, supervisor_id, clock, hold, data_dir)
        self._spawns = settings.isolation.runners == "spawn"
        self._not_ours = linux.children()
        self._import_timeout_ms = int(settings.supervisor.import_timeout_s * 1000)
        self._patience_ms = int(settings.supervisor.lease_grace_s * 1000)
        self._idle_exit_ms = int(settings.supervisor.runner_idle_exit_s * 1000)
        linux.adopt_orphans()

    def report_to(self, listener: RunnerListener) -> None:
        """Tell this one what the runners do; to be said before there is a runner."""
        self._listener = listener

    def __iter__(self) -> Iterator[WorkerSlot]:
        return iter(self._slots)

    def with_parked(self) -> list[WorkerSlot]:
        """Those that hold something, parked ones too. Most are idle, and not worth a look in each turn."""
        return [each for each in self._slots if each.attempt or each.backlog] + self.parking.tasks()

    def attempts(self) -> list[tuple[WorkerSlot, LeasedAttempt]]:
        """Every attempt, with the worker that holds it."""
        return [(worker, attempt) for worker in self.with_parked() for attempt in worker.attempts()]

    def retire(self) -> None:
        """From now on, no worker is there but those that have something under way."""
        self.roster.retire({attempt.lease.worker_id for _, attempt in self.attempts()})

    def tell_hold(self) -> None:
        """Let every zygote know until when its runners may run."""
        for zygote in self._zygotes:
            zygote.tell_hold()

    # -- getting a runner

    def warm(self, target: str, launch: str) -> None:
        """Have the app of a target imported before it is needed."""
        self._zygote(Origin(target, launch, anew=self._spawns))

    def runner_for(self, worker: WorkerSlot, task: Task) -> RunnerProcess | TaskError:
        """The worker's runner for a task, which may have to get `ready` first; or why there is none.

        It has never served another owner.
        """
        zygote, runner, tenant = self._zygote(Origin.of(task)), worker.runner, self._isolation.tenant(task)
        if runner is not None and (runner.zygote is not zygote or runner.tenant != tenant):
            self.let_go(worker)
        if zygote.broken is not None:
            return zygote.broken
        if worker.runner is None:
            try:
                confinement = self._isolation.confine(task, worker.number)
            except OSError as error:
                return TaskError("not_confined", f"The folder of the task cannot be made ready: {error}")
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
        """Go on with sending when the runner takes something in."""
        copy = end.dup()  # the end itself is registered already, for reading

        def send_rest() -> None:
            if not runner.send_rest(end):
                self._unregister(copy)
                copy.close()

        self._selector.register(copy, selectors.EVENT_WRITE, send_rest)

    def _zygote(self, origin: Origin) -> ZygoteProcess:
        """The zygote of an origin; a new one when the app's files have changed or the last one went away."""
        zygote = self._zygotes.of(origin)
        if zygote is not None and zygote.files_changed():
            log.info("%s has changed: its runners are replaced", origin.target)
            self._retire(zygote)
            zygote = None
        if zygote is None or (zygote.gone and zygote.broken is None):
            zygote = self._zygotes.start(origin)
            self._selector.register(zygote.control, selectors.EVENT_READ, lambda: self._read_zygote(zygote))
            for other in self._zygotes.too_many():
                self._retire(other)
        return zygote

    # -- letting go of runners

    def task_is_over(self, worker: WorkerSlot, *, fresh: bool) -> None:
        """Keep the worker's runner for the next task, unless it has served long enough or must be fresh."""
        runner = worker.runner
        if runner is None:
            return
        self._watchdog.spare(runner)
        runner.tasks_done += 1
        runner.idle_since = self._clock.steady_ms()
        used_up = runner.tasks_done >= self._max_tasks_per_runner
        alone = fresh or worker.parked or self._isolation.for_each_task
        if alone or used_up or runner.spent:
            runner.kill()
            self.let_go(worker)
        elif runner.zygote in self._zygotes.retired:
            self.let_go(worker)

    def is_last_task_of(self, runner: RunnerProcess) -> bool:
        """Whether a task that it is given now is the last one, whatever becomes of it."""
        return self._isolation.for_each_task or runner.tasks_done + 1 >= self._max_tasks_per_runner

    def end_idle(self, now: int) -> None:
        """Part from runners without a task for long, but for the few of each queue that get the next ones."""
        idle: Counter[str] = Counter()
        for worker in self._slots:  # the first that is free gets the next task
            if worker.runner is not None and not worker.load:
                idle[worker.queue] += 1
                too_many = self._idle_exit_ms and idle[worker.queue] > _KEPT_WARM
                if too_many and now - worker.runner.idle_since >= self._idle_exit_ms:
                    self.let_go(worker)

    def let_go(self, worker: WorkerSlot) -> None:
        """Part from the worker's runner; idle, it ends by itself, and its lifespan ends in order."""
        runner, worker.runner = worker.runner, None
        if runner is not None:
            self._by_runner.pop(runner.name, None)
            self._forget(runner)
            if runner.pid is not None:
                self._watchdog.end_at(runner, self._clock.steady_ms() + int(LIFE_ENDS_S * 1000))

    def end_at(self, worker: WorkerSlot, moment: int) -> None:
        """Have the worker's runner ended by then, whatever the loop waits for, unless its task is over."""
        if worker.runner is not None:
            self._watchdog.end_at(worker.runner, moment)

    def end_late_runner(self, worker: WorkerSlot, now: int) -> None:
        """End the worker's runner, or the zygote that did not even fork it, if it should be ready by now."""
        runner = worker.runner
        if runner is None or runner.ready:
            return
        if runner.requested_at is None:
            self._end_late_import(runner.zygote, now)
        elif runner.zygote.origin.anew:
            if now - runner.requested_at >= self._import_timeout_ms:
                self._end_without_app(worker, runner, self._import_took_too_long())
        elif now - runner.requested_at >= self._patience_ms:
            words = "a runner of %s was not ready within %d ms"
            log.warning(words, runner.zygote.target, self._patience_ms, extra=worker.in_logs)
            runner.requested_at = now
            if runner.pid is not None:
                runner.kill()
            else:
                runner.zygote.kill()

    def _end_late_import(self, zygote: ZygoteProcess, now: int) -> None:
        """End a zygote whose app takes too long to import, or has another version by now."""
        if zygote.files_changed():
            log.info("%s has changed while it was imported: it is imported anew", zygote.target)
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
        """The runner could not import the app for itself."""
        error = app_not_loaded(runner.zygote.target, reason, details)
        log.warning("%s", error.message, extra=worker.in_logs)
        runner.kill()
        self.let_go(worker)
        self._listener.app_did_not_load(worker, error)

    def _forget(self, runner: RunnerProcess) -> None:
        if not runner.closed:
            for end in (runner.work, runner.stdout, runner.stderr):
                self._unregister(end)
            runner.close()
            self._isolation.release(runner.confinement)

    def _retire(self, zygote: ZygoteProcess) -> None:
        """Its idle runners end now, those at work when their task is over; the last one takes it along."""
        self._zygotes.retire(zygote)
        for runner in list(zygote.runners.values()):
            worker = self._by_runner.get(runner.name)
            if worker is not None and (worker.attempt is None or not worker.attempt.sent):
                self.let_go(worker)
        self._bury(zygote)

    def _bury(self, zygote: ZygoteProcess) -> None:
        if zygote in self._zygotes.retired and not zygote.runners:
            self._zygotes.retired.remove(zygote)
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
            others = {other.pid for other in self._zygotes} - {zygote.pid}
            linux.end_children(spare=others | self._not_ours)
            while zygote.runners:
                self._runner_ended(zygote.runners.popitem()[1], -signal.SIGKILL)
            self._retire(zygote)
        else:
            for runner in [*zygote.runners.values()]:
                self._get_ready(runner)
            self._bury(zygote)

    def _get_ready(self, runner: RunnerProcess) -> None:
        """It may have greeted before its zygote told its pid, by which it is held to its limits and ended."""
        worker = self._by_runner.get(runner.name)
        if worker is not None and runner.greeted and runner.pid is not None and not runner.ready:
            runner.ready = True
            self._listener.runner_is_ready(worker)

    def _read_messages(self, runner: RunnerProcess) -> None:
        try:
            messages = runner.messages.read()
            if runner.messages.ended:
                self._unregister(runner.work)
            for kind, body in messages:
                self._take_message(runner, kind, body)
        except NotAMessage as error:
            self._end_misbehaving(runner, str(error))
        except Exception:  # ours: but no runner's word may end the loop that serves all others
            words = "a message from a runner of %s could not be taken"
            log.exception(words, runner.zygote.target, extra=self._in_logs(runner))
            self._end_misbehaving(runner, "its message could not be taken; the supervisor's log says why")

    def _take_message(self, runner: RunnerProcess, kind: str, body: dict[str, Any]) -> None:
        worker = self._by_runner.get(runner.name)
        if worker is None or runner.messages.ended:
            return
        attempt = worker.attempt
        if kind == "hello" and not runner.greeted:
            if (files := parse_hello(body, runner.zygote.origin.anew)) is not None:
                runner.zygote.watch(files)
            runner.greeted = True
            self._get_ready(runner)
        elif kind == "broken" and not runner.greeted and runner.zygote.origin.anew:
            self._end_without_app(worker, runner, *parse_broken(body))
        elif attempt is None or not attempt.sent:
            raise NotAMessage("it spoke without having been asked")
        else:
            message = parse(kind, body, attempt.lease)
            if isinstance(message, Done):  # what was written before the last word belongs to this task
                self._read_output(runner, everything=True)
                runner.spent = runner.spent or message.spent
            self._listener.runner_said(worker, attempt, message)

    def _in_logs(self, runner: RunnerProcess) -> dict[str, Any]:
        worker = self._by_runner.get(runner.name)
        return {} if worker is None else worker.in_logs

    def _end_misbehaving(self, runner: RunnerProcess, reason: str) -> None:
        """Nothing more is heard from this runner, or given to it."""
        log.warning("a runner of %s is ended: %s", runner.zygote.target, reason, extra=self._in_logs(runner))
        runner.messages.dry = runner.messages.ended = True
        self._unregister(runner.work)
        runner.kill()
        worker = self._by_runner.get(runner.name)
        if worker is not None and worker.attempt is not None and worker.attempt.sent:
            self._listener.runner_misbehaved(worker, worker.attempt, reason)
        elif worker is not None:
            self.let_go(worker)
            self._listener.runner_died(worker, -signal.SIGKILL)

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
        self._watchdog.spare(runner)
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
        """End every process; first, in order, those that only wait for work."""
        for worker in self._slots:
            self.let_go(worker)
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
