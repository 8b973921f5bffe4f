"""The supervisor loop: owns the workers of one host and outlives every server."""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ....core.files import tasks_folder
from ....core.reports import HandedBack
from ....core.times import SystemClock
from ....errors import StoreError
from ....observability import tracing
from ....settings import Settings
from ....store.protocol import Watch, WorkerStore
from ..isolation import Isolation
from ..lock import RETIRE
from ..processes.messages import LeaseDeadline
from ..submission import SubmitServer
from .background import BackgroundWork, FolderRemoval, Watchdog
from .batch import SHARE_COMMIT_MS, BatchWriter, Shared, Timers, WorkSource
from .claims import Claims, Pace
from .dispatch import Dispatch
from .leases import Leases
from .workers import Workers

#: How often a retired supervisor checks whether its successor has started.
_CHECK_SUCCESSOR_MS = 50

log = logging.getLogger("backburner.supervisor")


class Supervisor:
    """Runs the tasks of a source on this host until it is told to stop, or the source is over."""

    def __init__(
        self,
        store: WorkerStore,
        settings: Settings,
        data_dir: Path,
        supervisor_id: str,
        source: WorkSource,
        watch: Watch,
    ) -> None:
        """`watch` is closed at the end."""
        self._store = store
        self._id = supervisor_id
        self._source = source
        self._watch = watch
        self._selector = selectors.DefaultSelector()
        self._clock = clock = SystemClock()
        self._timers = Timers()
        self._removal = FolderRemoval()
        self._watchdog = Watchdog(clock)
        self._deadline = LeaseDeadline(counts_sleep=store.shared)
        shared = Shared(
            supervisor_id=supervisor_id,
            settings=settings,
            data_dir=data_dir,
            tasks_folder=tasks_folder(data_dir),
            clock=clock,
            timers=self._timers,
            selector=self._selector,
            deadline=self._deadline,
            watchdog=self._watchdog,
        )
        pace = Pace()
        self._submit_server = SubmitServer(data_dir, store.url, self._selector)
        self._last_submit_at = 0
        self._writer = writer = BatchWriter(source.commit_batch, shared)
        self._workers = workers = Workers(source.slots, shared, Isolation(settings, store.url, data_dir))
        self._dispatch = Dispatch(shared, workers, writer, pace, self._removal)
        workers.dispatch = self._dispatch
        self._claims = Claims(shared, source, workers, pace)
        self._leases = Leases(shared, store, workers, self._dispatch, writer)
        self._fenced = self._superseded = False
        self._handle_signals: Callable[[], None]

    def run(
        self,
        background: Sequence[BackgroundWork] = (),
        *,
        warm: Sequence[tuple[str, str]] = (),
        on_ready: Callable[[], object] = lambda: None,
    ) -> bool:
        """Work until the end; leave no process behind.

        `background` runs beside it. The apps of the targets and launches in `warm` are imported before their
        first task. `on_ready` is called when tasks can be taken. Returns whether nothing was left to do;
        else it was told to stop.
        """
        tracing.provide()
        threads: list[BackgroundWork] = [self._removal, self._watchdog, *background]
        signals = {signal.SIGTERM: self._drain, signal.SIGINT: self._drain, RETIRE: self._retire}
        with waking_signals(self._selector, signals) as self._handle_signals:
            try:
                self._source.recover()
                self._leases.heartbeat(self._clock.steady_ms())
                self._selector.register(self._watch, selectors.EVENT_READ, self._handle_notifications)
                if self._source.accepts_submissions:
                    self._submit_server.open()
                for work in threads:
                    work.start()
                on_ready()
                for target, launch in warm:
                    self._workers.warm(target, launch)
                while not self._is_over():
                    self._turn()
                # A successor finds the tasks of one that failed, or was superseded, by its workers.
                if not self._superseded:
                    with contextlib.suppress(StoreError):
                        self._store.remove_workers(self._id)
            finally:
                self._end(threads)
        return not (self._leases.is_draining or self._superseded)

    # -- the loop

    def _turn(self) -> None:
        ready = self._selector.select(self._timeout_s(self._clock.steady_ms()))
        # The host may have slept: this comes before any event.
        was_fenced, self._fenced = self._fenced, self._deadline.has_passed
        if self._fenced and not was_fenced:
            self._leases.fence()
        self._handle_signals()  # first: what ends the supervisor may have ended a runner a moment later
        for key, _ in ready:
            key.data()
        now = self._clock.steady_ms()
        if self._timers.due("heartbeat", now):
            self._superseded = self._source.is_superseded()
            self._leases.heartbeat(now)
            with contextlib.suppress(StoreError):  # retried with the next heartbeat
                self._source.recover()
            self._watch.mend()
            self._workers.end_idle(now)
        if self._timers.due("check", now):
            self._leases.check(now)
            for worker, attempt in self._claims.late(now):
                self._dispatch.finish(
                    worker, attempt, HandedBack("Its worker is busy for longer than expected.")
                )
            if self._source.is_handing_over():
                self._timers.set("check", now + _CHECK_SUCCESSOR_MS)
        if not self._deadline.has_passed:
            self._leases.resume_answered(now)
            for worker in self._workers:  # one may be free since its attempt was stopped before it started
                self._dispatch.start_next(worker)
        self._commit(now)

    def _timeout_s(self, now: int) -> float | None:
        if self._claims.can_go_on and self._may_write(now):
            return 0
        return self._timers.timeout_s(now)

    def _may_write(self, now: int) -> bool:
        return self._writer.blocked_until(now) is None and not self._deadline.has_passed

    def _commit(self, now: int) -> None:
        """Write reports and submissions, and claim tasks for workers with room, in one commit."""
        submissions, claims = [], []
        if self._may_write(now):
            submissions = self._submit_server.take()
            self._claims.add_queues(one.new.queue for one in submissions)
            claims = self._claims.requests(now)
        else:
            self._submit_server.decline()  # the callers write for themselves
        if (retry_at := self._writer.blocked_until(now)) is not None:
            self._timers.set("claim", retry_at)
            if self._timers.due("write", now):
                self._timers.set("write", retry_at)
            return
        if not (self._timers.due("write", now) or submissions or claims):
            return
        more_follows = self._submissions_follow(bool(submissions), now) or any(
            worker.backlog for worker in self._workers
        )
        result = self._writer.commit(submissions, claims, more_follows=more_follows)
        if result is None:
            self._submit_server.decline(submissions)
            return
        self._submit_server.answer(submissions, result.submitted)
        for lease in result.lost:
            self._leases.lose(lease)
        for worker in self._claims.take(claims, result, self._clock.steady_ms()):
            self._dispatch.start_next(worker)

    def _submissions_follow(self, submitted: bool, now: int) -> bool:
        """Return whether submissions come in quick succession, so that reports can wait for the next."""
        if not submitted:
            return False
        before, self._last_submit_at = self._last_submit_at, now
        return now - before <= SHARE_COMMIT_MS

    def _handle_notifications(self) -> None:
        topics = self._watch.drain()
        self._claims.notify(topics)
        self._leases.notify(topics, self._clock.steady_ms())

    # -- the end

    def _drain(self) -> None:
        self._submit_server.close()
        self._claims.stop()
        self._leases.drain(self._clock.steady_ms())

    def _retire(self) -> None:
        """Let a successor take over: start nothing, and let running tasks finish."""
        if self._leases.is_draining:
            return
        if not self._source.can_retire():
            self._drain()
            return
        now = self._clock.steady_ms()
        self._submit_server.close()
        self._claims.stop()
        self._leases.retire(now)
        self._workers.retire()
        with contextlib.suppress(StoreError):  # then idle workers are shown for a while longer
            self._store.remove_workers(self._id)
        self._leases.heartbeat(now)
        self._source.retire()

    def _is_over(self) -> bool:
        if self._superseded:
            return True
        if self._writer.unwritten or self._workers.busy():
            return False
        if self._leases.is_draining:
            return not self._source.is_handing_over()
        return self._source.is_over(self._clock.steady_ms() - self._dispatch.idle_since)

    def _end(self, threads: Sequence[BackgroundWork]) -> None:
        self._submit_server.close()
        self._workers.close()
        for work in threads:
            work.stop()
        self._watch.close()
        self._selector.close()


@contextlib.contextmanager
def waking_signals(
    selector: selectors.BaseSelector, handlers: Mapping[signal.Signals, Callable[[], None]]
) -> Iterator[Callable[[], None]]:
    """Let these signals wake the loop that waits on the selector, which then calls their handlers.

    So no signal interrupts the loop in its work. Yields a function that handles the signals so far. After one
    was handled the process is ending, and ignores later ones.
    """
    handled = False
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)

    def handle() -> None:
        nonlocal handled
        with contextlib.suppress(BlockingIOError):
            for number in reader.recv(4096):
                if number in handlers:
                    handled = True
                    handlers[signal.Signals(number)]()

    before = {number: signal.signal(number, lambda *_: None) for number in handlers}
    wakeup_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    selector.register(reader, selectors.EVENT_READ, handle)
    try:
        yield handle
    finally:
        signal.set_wakeup_fd(wakeup_fd)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if handled else handler)
        reader.close()
        writer.close()
