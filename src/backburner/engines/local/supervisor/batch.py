"""Batched writes of a supervisor: timers, the batch of one turn, and retries of failed commits."""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ....core.reports import Failed
from ....core.task import TaskError
from ....core.times import Clock
from ....errors import StoreError, StoreGone, StoreRefused
from ....observability.logging import about
from ....settings import Settings
from ....store.protocol import BatchResult, ClaimRequest, Lease
from ..processes.messages import LeaseDeadline
from ..status import WriteFailures
from ..submission import SubmitRequest
from .attempt import Report
from .background import Watchdog

log = logging.getLogger("backburner.supervisor")

#: How long a report may wait for others, to share a commit with them.
SHARE_COMMIT_MS = 8
_RETRY_MS = 250

Timer = Literal["heartbeat", "check", "claim", "write"]


class Timers:
    """Next time, by the steady clock, of each kind of work. A timer that was due is off until set again."""

    def __init__(self) -> None:
        self._times: dict[Timer, int] = {}

    def set(self, timer: Timer, time: int | None) -> None:
        """Let a timer be due at that time at the latest; None changes nothing."""
        if time is not None:
            known = self._times.get(timer)
            if known is None or time < known:
                self._times[timer] = time

    def due(self, timer: Timer, now: int) -> bool:
        """Return whether its time has come; the timer is off then."""
        time = self._times.get(timer)
        if time is None or now < time:
            return False
        del self._times[timer]
        return True

    def timeout_s(self, now: int) -> float | None:
        """Return the time until the next timer; None when none is set."""
        return max(0, min(self._times.values()) - now) / 1000 if self._times else None


@dataclass(frozen=True, slots=True)
class Shared:
    """What all parts of one supervisor share."""

    supervisor_id: str
    settings: Settings
    data_dir: Path
    tasks_folder: Path
    clock: Clock
    timers: Timers
    selector: selectors.BaseSelector
    deadline: LeaseDeadline
    watchdog: Watchdog


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that one turn of a supervisor commits: reports, new tasks, and claims for workers."""

    reports: Sequence[Report] = ()
    submissions: Sequence[SubmitRequest] = ()
    claims: Sequence[ClaimRequest] = ()


class BatchWriter:
    """Collects reports and commits them together with the submissions and claims of a turn.

    While the store is away, reports are kept in order. A store that refuses a batch for good (StoreRefused)
    gets its reports one by one; an attempt whose report is refused fails.
    """

    def __init__(self, commit: Callable[[Batch], BatchResult], shared: Shared) -> None:
        """`commit` writes a batch in one commit, or raises StoreError and has written nothing."""
        self._commit = commit
        self._timers = shared.timers
        self._clock = shared.clock
        self._failures = WriteFailures(shared.data_dir, shared.supervisor_id)
        self._reports: list[Report] = []
        self._waiting: list[Callable[[], object]] = []
        self._share_until = 0
        self._retry_at = 0

    @property
    def unwritten(self) -> Sequence[Report]:
        return self._reports

    def add(self, report: Report, then: Callable[[], object] | None = None) -> None:
        """Have a report written soon; at once where `then` waits to be called when it is on disk."""
        self._reports.append(report)
        if then is not None:
            self._waiting.append(then)
        self._timers.set("write", self._share_until if then is None else 0)

    def commit(
        self, submissions: Sequence[SubmitRequest], claims: Sequence[ClaimRequest], *, more_follows: bool
    ) -> BatchResult | None:
        """Commit all reports with these; None when the store failed, and reports are kept for a retry.

        Where `more_follows`, later reports wait a moment to share its commit.
        """
        try:
            result = self._commit_together(Batch(self._reports, submissions, claims))
        except StoreError as error:
            self._timers.set("write", self.store_failed(error))
            return None
        self._failures.clear()
        self._reports = []
        if more_follows:
            self._share_until = self._clock.steady_ms() + SHARE_COMMIT_MS
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
        return result

    def store_failed(self, error: StoreError) -> int:
        """Leave the store alone for a moment; return when to retry. Raises StoreGone, which is final."""
        if isinstance(error, StoreGone):
            raise error
        log.warning("%s", error)
        self._failures.add(error)
        self._retry_at = self._clock.steady_ms() + _RETRY_MS
        return self._retry_at

    def blocked_until(self, now: int) -> int | None:
        """Return when the store may be tried again after a failure; None when it may be now."""
        return self._retry_at if now < self._retry_at else None

    def _commit_together(self, batch: Batch) -> BatchResult:
        try:
            return self._commit(batch)
        except StoreRefused:
            declined = [None for _ in batch.submissions]
            return BatchResult(self._commit_one_by_one(), declined, [])

    def _commit_one_by_one(self) -> list[Lease]:
        """Commit each report alone; return the leases that are lost. Raises when one remains refused."""
        lost: list[Lease] = []
        refused, refusal = [], None
        while self._reports:
            report = self._reports[0]
            try:
                lost += self._commit_alone(report)
            except StoreRefused as error:
                refused.append(report)
                refusal = error
            except StoreError:
                self._reports = refused + self._reports
                raise
            del self._reports[0]
        self._reports = refused
        if refusal is not None:
            raise refusal
        return lost

    def _commit_alone(self, report: Report) -> Sequence[Lease]:
        try:
            return self._commit(Batch([report])).lost
        except StoreRefused as refusal:
            lease, _ = report
            log.warning("%s", refusal, extra=about(lease.task_id, lease.attempt))
            message = f"The store refused what the task had to write: {refusal.details['reason']}."
            self._commit(Batch([(lease, [Failed(TaskError("store_refused", message))])]))
            return [lease]  # over for its runner, too
