"""The supervisor: owns the workers of one host, leases tasks for them, and outlives every server.

One loop on one thread does it all: it hears the store and the runners, hands tasks out, and
writes what happened in as few commits as there is time for. Only what may take long has threads
of its own, beside it.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ... import tracing
from ...artifacts import open_artifacts
from ...clock import SystemClock
from ...config import Settings
from ...errors import StoreError, StoreRefused
from ...folders import tasks_folder
from ...log_lines import about
from ...reports import Change, Failed
from ...store import Wish
from ...task import TaskError
from ...watch import Watch
from ...worker_store import WorkerStore
from .background import BackgroundWork, FolderRemoval
from .claiming import Claiming
from .complaint import Complaint
from .dispatch import Dispatch
from .hold import Hold
from .intake import HandedIn, Intake
from .isolation import Isolation
from .keeping_artifacts import ArtifactKeeping
from .leased_attempt import Report
from .leases import Leases
from .oversight import Oversight
from .pace import Pace
from .signals import waking_signals
from .store_outage import StoreOutage
from .succession import RETIRE
from .timers import Timers
from .watchdog import Watchdog
from .work_source import WorkSource
from .workers import Workers
from .write_batch import SHARE_COMMIT_MS, WriteBatch

#: How often one that has retired looks whether its successor is there.
_LOOK_FOR_SUCCESSOR_MS = 50

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
        self._selector = selectors.DefaultSelector()
        self._watch = watch
        self._intake = Intake(data_dir, store.url, self._selector)
        self._clock = clock = SystemClock()
        self._timers = timers = Timers()
        self._removal = removal = FolderRemoval()
        self._complaint = complaint = Complaint(data_dir, supervisor_id)
        pace, folder = Pace(), tasks_folder(data_dir)
        self._outage = outage = StoreOutage(clock, complaint)
        self._batch = batch = WriteBatch(self._write_all, self._fail_instead, timers, outage, clock)
        self._watchdog = watchdog = Watchdog(clock)
        self._hold = hold = Hold(counts_sleep=store.shared)
        isolation = Isolation(settings, store.url, data_dir)
        self._workers = workers = Workers(
            source.slots, settings, supervisor_id, self._selector, clock, hold, watchdog, isolation, data_dir
        )
        artifacts = ArtifactKeeping(open_artifacts(settings.artifacts, folder), folder, self._selector)
        self._dispatch = dispatch = Dispatch(
            workers, batch, timers, pace, removal, artifacts, clock, settings, folder, source.ended
        )
        workers.report_to(dispatch)
        self._oversight = Oversight(workers, dispatch, batch, timers, settings, folder)
        self._claiming = Claiming(source, workers, dispatch, timers, pace, settings)
        self._leases = Leases(store, workers, self._oversight, batch, timers, outage, hold, clock, settings)
        self._fenced = self._superseded = False
        self._hear_signals: Callable[[], None]
        self._handed_in: list[HandedIn] = []
        self._handed_in_at = 0
        self._wishes: list[Wish] = []

    def run(
        self,
        background: Sequence[BackgroundWork] = (),
        *,
        warm: Sequence[tuple[str, str]] = (),
        on_ready: Callable[[], object] = lambda: None,
    ) -> bool:
        """Work until the end; leaves no process behind.

        `background` goes on beside it. The apps of the targets and launches in `warm` are imported before
        there is a task for them. `on_ready` is called when tasks can be taken. Gives back whether there
        was nothing left to do; else it was told to stop.
        """
        tracing.provide()
        beside: list[BackgroundWork] = [self._removal, self._watchdog, *background]
        signals = {signal.SIGTERM: self._drain, signal.SIGINT: self._drain, RETIRE: self._retire}
        with waking_signals(self._selector, signals) as self._hear_signals:
            try:
                self._source.take_over()
                self._leases.heartbeat(self._clock.steady_ms())
                self._selector.register(self._watch, selectors.EVENT_READ, self._hear)
                if self._source.takes_in:
                    self._intake.open()
                for work in beside:
                    work.start()
                on_ready()
                for target, launch in warm:
                    self._workers.warm(target, launch)
                while not self._is_over():
                    self._turn()
                # Who takes over from one that failed, or was superseded, finds its tasks by its workers.
                if not self._superseded:
                    with contextlib.suppress(StoreError):
                        self._store.remove_workers(self._id)
            finally:
                self._end(beside)
        return not (self._oversight.is_draining or self._superseded)

    # -- the loop

    def _turn(self) -> None:
        heard = self._selector.select(self._patience_s(self._clock.steady_ms()))
        # It may have slept: nothing that was heard meanwhile comes before this.
        was_fenced, self._fenced = self._fenced, self._hold.is_over
        if self._fenced and not was_fenced:
            self._oversight.fence()
        self._hear_signals()  # first: what ends the supervisor may have ended a runner a moment later
        for key, _ in heard:
            key.data()
        now = self._clock.steady_ms()
        if self._timers.due("heartbeat", now):
            self._superseded = self._source.is_superseded()
            self._leases.heartbeat(now)
            with contextlib.suppress(StoreError):  # the next one will do
                self._source.take_over()
            self._watch.mend()
            self._workers.end_idle(now)
        if self._timers.due("look", now):
            self._oversight.look(now)
            self._leases.answer_for_nobody(now)
            self._claiming.let_others_have(now)
            if self._source.is_handing_over():
                self._timers.soon("look", now + _LOOK_FOR_SUCCESSOR_MS)
        if not self._hold.is_over:
            self._leases.let_go_on(now)
            for worker in self._workers:  # one may be free since its attempt was stopped before it began
                self._dispatch.begin_next(worker)
        self._write(now)

    def _patience_s(self, now: int) -> float | None:
        """How long there is nothing to do if nobody says anything."""
        if self._claiming.can_go_on and self._may_write(now):
            return 0
        return self._timers.patience_s(now)

    def _may_write(self, now: int) -> bool:
        return self._outage.until(now) is None and not self._hold.is_over

    def _write(self, now: int) -> None:
        """Write what is due, with what was handed in, and lease tasks for who is free: in one commit."""
        self._timers.soon("claim", self._outage.until(now))
        if self._may_write(now):
            self._handed_in = self._intake.take()
            self._claiming.handed_in(one.new.queue for one in self._handed_in)
            self._wishes = self._claiming.wishes(now)
        else:  # callers can write for themselves, and a heartbeat that arrives asks for claims again
            self._intake.decline()
            self._handed_in, self._wishes = [], []
        if self._timers.due("write", now) or self._handed_in or self._wishes:
            more_follows = (
                self._is_in_flow(now)
                or self._source.is_in_flow
                or any(worker.backlog for worker in self._workers)
            )
            self._batch.write(now, more_follows=more_follows)

    def _is_in_flow(self, now: int) -> bool:
        """Whether tasks are handed in one after another: what ends meanwhile is written with the next."""
        if not self._handed_in:
            return False
        before, self._handed_in_at = self._handed_in_at, now
        return now - before <= SHARE_COMMIT_MS

    def _hear(self) -> None:
        topics = self._watch.drain()
        self._claiming.heard(topics)
        self._leases.heard(topics, self._clock.steady_ms())

    def _write_all(self, reports: list[Report]) -> None:
        (handed_in, self._handed_in), (wishes, self._wishes) = (self._handed_in, []), (self._wishes, [])
        try:
            turn = self._source.take_turn(reports, handed_in, wishes)
        except StoreError:
            self._intake.decline(handed_in)
            raise
        self._complaint.over()
        self._intake.answer(handed_in, turn.submitted)
        for lease in turn.lost:
            self._oversight.lose(lease)
        self._claiming.granted(wishes, turn, self._clock.steady_ms())
        self._claiming.heard(turn.topics)  # what was queued after the claims is found by the next

    def _fail_instead(self, report: Report, refusal: StoreRefused) -> tuple[Report, Callable[[], object]]:
        """The store will never take this report, so its attempt fails, and is over for its runner too."""
        lease, _ = report
        log.warning("%s", refusal, extra=about(lease.task_id, lease.attempt))
        message = f"The store refused what the task had to write: {refusal.details['reason']}."
        failure: list[Change] = [Failed(TaskError("store_refused", message))]
        return (lease, failure), partial(self._oversight.lose, lease)

    def _drain(self) -> None:
        self._intake.close()
        self._claiming.stop()
        self._oversight.drain(self._clock.steady_ms())

    def _retire(self) -> None:
        """Another one will do the work: take nothing on, and bring to its end what runs."""
        if self._oversight.is_draining:
            return
        if not self._source.can_retire():
            self._drain()
            return
        now = self._clock.steady_ms()
        self._intake.close()
        self._claiming.stop()
        self._oversight.retire(now)
        self._workers.retire()
        with contextlib.suppress(StoreError):  # then it looks for a while as if idle workers were there
            self._store.remove_workers(self._id)
        self._leases.heartbeat(now)
        self._source.retire()

    def _is_over(self) -> bool:
        if self._superseded:
            return True
        if self._batch.unwritten or any(worker.load for worker in self._workers.with_parked()):
            return False
        if self._oversight.is_draining:
            return not self._source.is_handing_over()
        return self._source.is_over(self._clock.steady_ms() - self._dispatch.idle_since)

    def _end(self, beside: Sequence[BackgroundWork]) -> None:
        self._intake.close()
        self._workers.close()
        for work in beside:
            work.stop()
        self._watch.close()
        self._selector.close()
