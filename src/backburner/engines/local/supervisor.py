"""The supervisor: owns the workers of one host, leases tasks for them, and outlives every server.

One loop on one thread does it all: it hears the store and the runners, hands tasks out, and
writes what happened in as few commits as there is time for. Only the keeper has a thread of
its own, since its sweeps may take long.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...clock import Clock, SystemClock
from ...config import Settings
from ...context import scratch_folder
from ...errors import StoreError, StoreGone, TaskNotFound
from ...folders import tasks_folder
from ...lifecycle import State
from ...store import (
    ANYTHING,
    Asked,
    Change,
    Checkpointed,
    Failed,
    HandedBack,
    Lease,
    Outcome,
    Registered,
    Started,
    Stopping,
    Store,
)
from ...task import Artifact, InputRequest, Progress, TaskError
from . import linux, work_is_left
from .housekeeping import Housekeeping, take_over
from .leased_attempt import CANCELLED, HANDED_BACK, LEASE_LOST, TIMED_OUT, LeasedAttempt
from .pace import Pace
from .task_log import TaskLog
from .wakeups import waking_signals
from .workers import Workers, WorkerSlot

log = logging.getLogger("backburner.supervisor")

_LOOK_EVERY_MS = 250
_FLUSH_EVERY_MS = 100
_STORE_RETRY_MS = 250
_SHARE_COMMIT_MS = 8
_BACKLOG_WAITS_MS = 50
_MOST_FALSE_STARTS = 3
_NEVER = 1 << 62


class Supervisor:
    """Runs the tasks of a store on this host until it is told to stop, or has been idle for long."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        data_dir: Path,
        supervisor_id: str,
        *,
        clock: Clock | None = None,
        targets: tuple[str, ...] = (),
    ) -> None:
        self._store = store
        self._settings = settings
        self._tasks_folder = tasks_folder(data_dir)
        self._id = supervisor_id
        self._clock = clock or SystemClock()
        self._host = socket.gethostname()
        self._started_at = self._busy_at = self._clock.now_ms()
        self._selector = selectors.DefaultSelector()
        self._watch = store.watch()
        self._workers = Workers(settings, supervisor_id, self._selector, self._clock, self)
        self._targets = targets
        self._claimable = set(settings.queues)
        self._deep: set[str] = set()  # where the last claim found as many tasks as it asked for
        self._pace = Pace()
        self._unwritten: list[tuple[Lease, list[Change]]] = []
        self._after_write: list[Callable[[], object]] = []
        self._next_heartbeat = self._next_look = self._next_write = self._store_back_at = 0
        self._next_ready_at = _NEVER
        self._drained_at: int | None = None
        self._house = Housekeeping(store, settings, supervisor_id, self._clock, self._tasks_folder)

    # -- the loop

    def run(self, on_ready: Callable[[], object] = lambda: None) -> bool:
        """Work until the end; leaves no process behind. `on_ready` is called when it can take tasks.

        Whether it was idle and so left by itself; else it was told to stop.
        """
        with waking_signals(self._selector, self._drain):
            try:
                take_over(self._store, self._id)
                self._heartbeat(self._clock.now_ms())
                self._selector.register(self._watch, selectors.EVENT_READ, self._hear)
                self._house.start()
                on_ready()
                for target in self._targets:
                    self._workers.warm(target)
                while not self._over():
                    self._turn()
            finally:
                self._end()
        return self._drained_at is None

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience_s()):
            key.data()
        now = self._clock.now_ms()
        if now >= self._next_heartbeat:
            self._heartbeat(now)
        if now >= self._next_look:
            self._look(now)
        self._hand_out(now)
        self._write(now)

    def _patience_s(self) -> float:
        """How long there is nothing to do unless something is heard."""
        next_write = self._next_write if self._unwritten else _NEVER
        moment = min(self._next_heartbeat, self._next_look, self._next_ready_at, next_write)
        return max(0.0, (moment - self._clock.now_ms()) / 1000)

    def _over(self) -> bool:
        if self._unwritten or any(worker.load for worker in self._workers.workers):
            return False
        if self._drained_at is not None:
            return True
        idle_exit_ms = self._settings.idle_exit_s * 1000
        if not idle_exit_ms or self._clock.now_ms() - self._busy_at < idle_exit_ms:
            return False
        return not work_is_left(self._store, self._settings, held=False)

    def _drain(self) -> None:
        """On the first signal finish what runs, on the second hand everything back at once."""
        now = self._clock.now_ms()
        grace_ms = int(self._settings.drain_grace_s * 1000) if self._drained_at is None else 0
        self._drained_at = now + grace_ms
        self._next_look = now

    def _soon(self, moment: int) -> None:
        """Look at the attempts at that moment at the latest."""
        self._next_look = min(self._next_look, moment)

    # -- hearing the store

    def _hear(self) -> None:
        heard = self._watch.drain()
        anything = ANYTHING in heard
        for queue in self._settings.queues:
            if anything or f"queue:{queue}" in heard:
                self._claimable.add(queue)
        for worker, attempt in list(self._workers.attempts()):
            if anything or f"steer:{attempt.lease.task_id}" in heard:
                self._see_what_is_wanted(worker, attempt)

    def _see_what_is_wanted(self, worker: WorkerSlot, attempt: LeasedAttempt) -> None:
        """Somebody may have cancelled the task, or answered its questions."""
        try:
            if self._store.head(attempt.lease.task_id).state is State.CANCEL_REQUESTED:
                self._cancel(worker, attempt)
            if attempt.asked:
                self._bring_answers(worker, attempt)
        except (StoreError, TaskNotFound):
            self._next_heartbeat = 0  # that tells what became of it

    def _bring_answers(self, worker: WorkerSlot, attempt: LeasedAttempt) -> None:
        answered = {
            request.key: {"action": request.action, "content": request.content}
            for request in self._store.input_requests(attempt.lease.task_id)
            if request.answered_at is not None
        }
        for number, keys in list(attempt.asked.items()):
            if all(key in answered for key in keys) and worker.runner is not None:
                del attempt.asked[number]
                worker.runner.tell("reply", {"number": number, "value": {key: answered[key] for key in keys}})

    def _cancel(self, worker: WorkerSlot, attempt: LeasedAttempt) -> None:
        if attempt.stopping is not None:
            return
        attempt.changed(Stopping())
        kill_at = self._clock.now_ms() + int(self._settings.cancel_grace_s * 1000)
        self._stop(worker, attempt, TaskError(CANCELLED, "The task was cancelled."), kill_at)
        if attempt.sent and worker.runner is not None:
            worker.runner.tell("cancel", {"task_id": attempt.lease.task_id, "attempt": attempt.lease.attempt})

    # -- handing out

    def _hand_out(self, now: int) -> None:
        if self._drained_at is not None or now < self._store_back_at:
            return
        if now >= self._next_ready_at:
            self._next_ready_at = _NEVER
            self._claimable.update(self._settings.queues)
        for queue in list(self._claimable):
            room = self._pace.room(queue)
            most = room // 2 if queue in self._deep else 0  # a task or two are not worth leasing ahead
            wanting = [w for w in self._workers.workers if w.queue == queue and w.load <= most]
            if wanting:
                self._claim(queue, wanting, room)

    def _claim(self, queue: str, wanting: list[WorkerSlot], room: int) -> None:
        """Lease for the workers that have room; the best tasks go to those that are free."""
        by_id = {worker.worker_id: worker for worker in wanting}
        names = [name for place in range(room) for name, worker in by_id.items() if worker.load <= place]
        try:
            leases = self._store.claim([queue], names, fair=bool(self._settings.fair_share))
            if len(leases) == len(names):
                self._deep.add(queue)
            else:
                self._deep.discard(queue)
                self._claimable.discard(queue)
        except StoreError as error:
            self._store_failed(error)
            return
        for lease in leases:
            attempt = LeasedAttempt(lease, TaskLog(lease.last_log_seq, self._settings.max_log_bytes))
            by_id[lease.worker_id].backlog.append(attempt)
        for worker in wanting:
            self._next(worker)
        if queue not in self._claimable:
            with contextlib.suppress(StoreError):
                self._next_ready_at = self._store.next_ready_at() or _NEVER

    def _next(self, worker: WorkerSlot) -> None:
        """Let a free worker begin with what it has leased."""
        if worker.attempt is None and worker.backlog:
            worker.attempt = worker.backlog.popleft()
            self.runner_is_ready(worker)

    def runner_is_ready(self, worker: WorkerSlot) -> None:
        """Send the worker's attempt to its runner, if both are there."""
        attempt = worker.attempt
        if attempt is None or attempt.sent:
            return
        runner = self._workers.runner_for(worker, attempt.lease.task.target)
        if isinstance(runner, TaskError):
            self._finish(worker, attempt, Failed(runner))
            self._next(worker)
        elif not runner.ready:
            self._soon(self._clock.now_ms() + self._patience_with_runners_ms)
        else:
            now = self._clock.now_ms()
            limit_s = attempt.lease.task.resources.max_runtime_s
            attempt.deadline = None if limit_s is None else now + int(limit_s * 1000)
            attempt.sent_at = now
            # Where tasks are over at once, the start is written with the end.
            quick = self._pace.room(worker.queue) > 1
            attempt.changed(Started(pid=runner.pid, timeout_at=attempt.deadline, at=now), urgent=not quick)
            if quick:
                self._soon(now + _SHARE_COMMIT_MS)
            if attempt.lease.task.resources.memory_mb is not None and runner.pid is not None:
                attempt.memory_before_mb = linux.memory_mb(runner.pid)
            assignment = attempt.assignment(
                self._tasks_folder, self._settings.max_result_bytes, worker.number
            )
            if not runner.send("run", assignment.to_json()):
                runner.kill()  # it is gone, or takes nothing in; its end is heard
            self._soon(now + _LOOK_EVERY_MS if attempt.watched else attempt.deadline or _NEVER)
            if worker.backlog:
                self._soon(now + _BACKLOG_WAITS_MS)

    # -- what runners do

    def runner_wrote(
        self, worker: WorkerSlot, attempt: LeasedAttempt, output: list[tuple[str, bytes]]
    ) -> None:
        now = self._clock.now_ms()
        for stream, data in output:
            attempt.log.feed(stream, data, now)
        self._soon(now + _FLUSH_EVERY_MS)

    def runner_said(
        self, worker: WorkerSlot, attempt: LeasedAttempt, kind: str, body: dict[str, Any]
    ) -> None:
        now = self._clock.now_ms()
        if kind == "done":
            fresh = attempt.lease.task.isolation == "fresh"
            self._pace.measured(worker.queue, now - (attempt.sent_at or now))
            self._finish(worker, attempt, attempt.outcome_of(body))
            # A runner that had to be limited or stopped may not be what it was.
            self._workers.task_is_over(worker, fresh=fresh or attempt.watched or attempt.stopping is not None)
            self._next(worker)
        elif kind == "progress":
            attempt.progressed(Progress.from_dict(body))
            self._soon(now)
        else:
            self._take_request(worker, attempt, kind, body)

    def _take_request(
        self, worker: WorkerSlot, attempt: LeasedAttempt, kind: str, body: dict[str, Any]
    ) -> None:
        """The runner waits for the reply. It comes when this is on disk, or with the answers."""
        number = body.pop("number")
        if kind == "ask":
            lease, now = attempt.lease, self._clock.now_ms()
            requests = tuple(
                InputRequest(lease.task_id, ask["key"], lease.attempt, ask["method"], ask["params"], now)
                for ask in body["requests"]
            )
            attempt.asked[number] = [request.key for request in requests]
            attempt.changed(Asked(requests))
            return
        attempt.changed(
            Checkpointed(body["data_json"]) if kind == "checkpoint" else Registered(Artifact(**body))
        )
        runner = worker.runner
        if runner is not None:
            self._after_write.append(lambda: runner.tell("reply", {"number": number}))

    def runner_died(self, worker: WorkerSlot, code: int) -> None:
        attempt = worker.attempt
        if attempt is None:
            return
        if not attempt.sent:
            attempt.false_starts += 1
            if attempt.false_starts < _MOST_FALSE_STARTS:
                self.runner_is_ready(worker)  # another one will do
                return
        self._house.remove(scratch_folder(self._tasks_folder / attempt.lease.task_id, attempt.lease.attempt))
        self._finish(worker, attempt, attempt.outcome_of_death(code))
        self._next(worker)

    def _finish(self, worker: WorkerSlot, attempt: LeasedAttempt, outcome: Outcome) -> None:
        """The attempt is over, and off its worker's hands."""
        if attempt is worker.attempt:
            worker.attempt = None
        else:
            worker.backlog.remove(attempt)
        self._busy_at = self._clock.now_ms()
        if attempt.stopping is not None and attempt.stopping.type == LEASE_LOST:
            return
        attempt.log.end(self._busy_at)
        attempt.changed(outcome)
        self._unwritten.append((attempt.lease, attempt.take()))

    # -- stepping in

    def _look(self, now: int) -> None:
        """Enforce the limits, end what must end, and write what was said."""
        self._next_look = _NEVER
        for worker, attempt in list(self._workers.attempts()):
            if self._drained_at is not None:
                self._give_up(worker, attempt, now)
            elif not attempt.sent and worker.attempt is not attempt:
                self._let_others_have(worker, attempt, now)
            self._enforce(worker, attempt, now)
            if attempt.kill_at is not None:
                self._soon(attempt.kill_at)
            elif attempt.deadline is not None:
                self._soon(attempt.deadline)
            if attempt.watched:
                self._soon(now + _LOOK_EVERY_MS)
            if changes := attempt.take():
                self._unwritten.append((attempt.lease, changes))

    def _give_up(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        assert self._drained_at is not None, "asked while draining"
        reason = "The supervisor was told to stop."
        if attempt.sent and now < self._drained_at:
            self._soon(self._drained_at)
        else:
            self._stop(worker, attempt, TaskError(HANDED_BACK, reason), now)

    def _let_others_have(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        """What was leased ahead must not wait behind a task that turns out to be slow."""
        running = worker.attempt
        if running is not None and running.sent_at is not None:
            if now - running.sent_at < _BACKLOG_WAITS_MS:
                self._soon(running.sent_at + _BACKLOG_WAITS_MS)
            else:
                self._pace.measured(worker.queue, now - running.sent_at)
                self._finish(worker, attempt, HandedBack("Its worker is busy for longer than expected."))

    def _stop(self, worker: WorkerSlot, attempt: LeasedAttempt, error: TaskError, kill_at: int) -> None:
        """End an attempt: at once if no runner has it yet, else by `kill_at`."""
        attempt.stop(error, kill_at)
        if attempt.sent:
            self._soon(kill_at)
        else:
            self._finish(worker, attempt, attempt.outcome_of_death(0))

    @property
    def _patience_with_runners_ms(self) -> int:
        return int(self._settings.lease_grace_s * 1000)

    def _enforce(self, worker: WorkerSlot, attempt: LeasedAttempt, now: int) -> None:
        if attempt is worker.attempt and not attempt.sent:
            self._workers.end_late_runner(worker, now, self._patience_with_runners_ms)
            self._soon(now + self._patience_with_runners_ms)
        runner = worker.runner
        if runner is None or runner.pid is None or not attempt.sent:
            return
        if attempt.stopping is None:
            error = attempt.limit_exceeded(runner.pid, self._tasks_folder, now)
            if error is not None and error.type == TIMED_OUT:
                attempt.stop(error, now + int(self._settings.cancel_grace_s * 1000))
                runner.signal(signal.SIGTERM)
            elif error is not None:
                attempt.stop(error, now)
        if attempt.kill_at is not None and now >= attempt.kill_at:
            attempt.kill_at = now + 1000
            runner.kill()

    # -- writing

    def _write(self, now: int) -> None:
        """Write all that is to be written in one commit, then tell those who wait for it."""
        for _, attempt in self._workers.attempts():
            if attempt.urgent:
                self._unwritten.append((attempt.lease, attempt.take()))
        if not self._unwritten or now < self._store_back_at:
            return
        if now < self._next_write and not self._after_write:
            return
        try:
            lost = self._store.report_all(self._unwritten)
        except StoreError as error:
            self._store_failed(error)
            return
        self._unwritten = []
        if any(
            worker.backlog for worker in self._workers.workers
        ):  # there is more at once: share the next commit
            self._next_write = self._clock.now_ms() + _SHARE_COMMIT_MS
        waiting, self._after_write = self._after_write, []
        for tell in waiting:
            tell()
        for lease in lost:
            self._lost(lease)

    def _lost(self, lease: Lease) -> None:
        """Somebody else has the task now, or nobody: what our runner does is of no use."""
        for worker, attempt in list(self._workers.attempts()):
            if attempt.lease is lease:
                self._stop(worker, attempt, TaskError(LEASE_LOST, "The lease was lost."), 0)

    def _heartbeat(self, now: int) -> None:
        self._next_heartbeat = now + int(self._settings.heartbeat_s * 1000)
        held = list(self._workers.attempts())
        try:
            views = self._store.heartbeat(
                [attempt.lease for _, attempt in held],
                self._workers.records(self._host, self._started_at, now),
            )
            self._house.heartbeat_arrived()
        except StoreError as error:
            self._store_failed(error)
            return
        for (worker, attempt), view in zip(held, views, strict=True):
            if not view.held:
                self._lost(attempt.lease)
            elif view.state is State.CANCEL_REQUESTED:
                self._cancel(worker, attempt)
        self._claimable.update(self._settings.queues)  # in case a doorbell was not heard

    def _store_failed(self, error: StoreError) -> None:
        """Keep what is to be written, and try again shortly. A store that is gone ends the supervisor."""
        if isinstance(error, StoreGone):
            raise error
        log.warning("%s", error)
        self._store_back_at = self._next_write = self._clock.now_ms() + _STORE_RETRY_MS

    def _end(self) -> None:
        self._workers.close()
        self._house.stop()
        with contextlib.suppress(StoreError):
            self._store.remove_workers(self._id)
        self._watch.close()
        self._selector.close()
