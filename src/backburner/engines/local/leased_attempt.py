"""One attempt under a supervisor's eyes: what to write about it, and when to step in."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...config import LimitSettings
from ...execution import Assignment, choose_cpus
from ...folders import outgoing_folder, work_folder
from ...log_lines import about
from ...reports import (
    Cancelled,
    Change,
    Failed,
    HandedBack,
    Logged,
    Outcome,
    Progressed,
    Started,
    Succeeded,
    TimedOut,
    kind_of,
)
from ...store import Lease
from ...task import Action, Artifact, Progress, TaskError
from ...tracing import AttemptSpan, Traced, begin
from . import linux
from .runner_messages import Done
from .task_log import TaskLog

#: Why an attempt is being stopped: the type of the error that its task will have.
TIMED_OUT = "timed_out"
CANCELLED = "cancelled"
HANDED_BACK = "handed_back"
LEASE_LOST = "lease_lost"

_LOOK_EVERY_MS = 250
_SHARE_FOR_WEIGHING = 0.05
_MB = 1 << 20

#: What happened to an attempt, in order: what a store's `report_all` takes.
Report = tuple[Lease, list[Change]]


@dataclass(frozen=True, slots=True)
class AskedFor:
    """Questions that a runner waits on: their keys, and until when. After that, these answers hold."""

    keys: list[str]
    until: int | None = None
    otherwise: Mapping[str, tuple[Action, Any]] = field(default_factory=dict)


@dataclass(eq=False)
class LeasedAttempt:
    """An attempt from its lease to its end, as a supervisor sees it. Its moments are of the steady clock.

    `false_starts` counts runners that ended before they could have it. `stopping` is why it is to
    end, `kill_at` when patience with it ends. `asked` are the questions that its runner waits on since
    `waits_since`: the request's number to what was asked; it `has_answers` when only a worker is wanted to
    go on. `timeout_at` is the deadline in wall time, to show. Of one that is `over`, nothing more is
    written. It `may_be_ended` by others as soon as its supervisor was told to stop.
    """

    lease: Lease
    log: TaskLog
    sent_at: int | None = None
    deadline: int | None = None
    timeout_at: int | None = None
    memory_before_mb: float = 0.0
    files_before: Collection[linux.FileId] = ()
    false_starts: int = 0
    stopping: TaskError | None = None
    kill_at: int | None = None
    may_be_ended: bool = False
    asked: dict[int, AskedFor] = field(default_factory=dict)
    waits_since: int = 0
    has_answers: bool = False
    over: bool = False
    span: AttemptSpan | None = None
    _weigh_again_at: int = 0
    _progress: Progress | None = None
    _artifacts: dict[str, int] = field(default_factory=dict)
    _changes: list[Change] = field(default_factory=list)

    @property
    def in_logs(self) -> dict[str, Any]:
        return about(self.lease.task_id, self.lease.attempt)

    @property
    def sent(self) -> bool:
        """Whether a runner has it."""
        return self.sent_at is not None

    def begin(self, now: int, wall_now: int, runner_pid: int | None) -> None:
        """A runner gets it now, and its time runs."""
        resources = self.lease.task.resources
        limit_s = resources.max_runtime_s
        self.sent_at = now
        if limit_s is not None:
            limit_ms = int(limit_s * 1000)
            self.deadline, self.timeout_at = now + limit_ms, wall_now + limit_ms
        if resources.memory_mb is not None and runner_pid is not None:
            self.memory_before_mb = linux.memory_mb(runner_pid)
        if self.watched and runner_pid is not None:
            self.files_before = linux.hidden_files([runner_pid])
        self.span = begin(Traced.of(self.lease.task))
        self._changes.append(Started(pid=runner_pid, timeout_at=self.timeout_at, at=wall_now))

    def assignment(
        self, tasks_folder: Path, limits: LimitSettings, worker_number: int, *, last: bool
    ) -> Assignment:
        """What its runner is told; it may be the `last` that it gets."""
        resources = self.lease.task.resources
        return Assignment.of(
            self.lease,
            tasks_folder,
            limits,
            timeout_at=self.timeout_at,
            resources=resources,
            cpus=choose_cpus(resources.cpu, worker_number),
            last=last,
            span=self.span,
        )

    # -- what to write

    def progressed(self, progress: Progress) -> None:
        """Keep the latest progress for the next report."""
        self._progress = progress

    def report(self, *changes: Change) -> Report:
        """All that is not written yet, then these changes; for whoever writes it."""
        self._collect()
        collected, self._changes = self._changes, []
        return self.lease, [*collected, *changes]

    def news(self) -> Report | None:
        """All that is not written yet; None when there is nothing."""
        self._collect()
        return self.report() if self._changes else None

    def _collect(self) -> None:
        if lines := self.log.take():
            self._changes.append(Logged(lines))
        if self._progress is not None:
            self._changes.append(Progressed(self._progress))
            self._progress = None

    # -- when to step in

    def stop(self, error: TaskError, kill_at: int) -> None:
        """It is to end, at the earliest moment named. The first reason stays, unless the lease is lost."""
        if self.stopping is None or error.type == LEASE_LOST:
            self.stopping = error
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost: then nothing that it does counts any more."""
        return self.stopping is not None and self.stopping.type == LEASE_LOST

    @property
    def watched(self) -> bool:
        """Whether it has limits that only a look from outside can enforce."""
        resources = self.lease.task.resources
        return resources.memory_mb is not None or resources.scratch_mb is not None

    def look_again_at(self, now: int) -> int | None:
        """When to look at it next, if nothing happens before; None when there is no need."""
        moments = [self.deadline if self.kill_at is None else self.kill_at, self.log.show_at]
        if self.watched:
            moments.append(now + _LOOK_EVERY_MS)
        return min((moment for moment in moments if moment is not None), default=None)

    def limit_exceeded(self, runner: int, tasks_folder: Path, now: int) -> TaskError | None:
        """The limit that the attempt, run by this process, is over; None while it is within all."""
        resources = self.lease.task.resources
        if self.deadline is not None and now >= self.deadline:
            return self._overtime()
        is_weighed = resources.scratch_mb is not None and now >= self._weigh_again_at
        if resources.memory_mb is None and not is_weighed:
            return None
        began = time.perf_counter()
        use = linux.family_use(runner, self.files_before)
        if resources.memory_mb is not None:
            used = use.memory_mb - self.memory_before_mb
            if used > resources.memory_mb:
                message = f"The task used {used:.0f} MB of memory; its limit is {resources.memory_mb} MB."
                return TaskError("memory_exceeded", message)
        if is_weighed:
            used = self._files_mb(tasks_folder) + use.unlinked_mb
            # A folder of very many files takes long to weigh, and other tasks must not wait for it.
            self._weigh_again_at = now + int((time.perf_counter() - began) * 1000 / _SHARE_FOR_WEIGHING)
            return self._too_many_files(used)
        return None

    def keeps(self, artifact: Artifact) -> TaskError | None:
        """Count an artifact that is to be kept; the limit that the attempt is over then."""
        self._artifacts[artifact.artifact_id] = artifact.size_bytes
        return self._too_many_files(sum(self._artifacts.values()) / _MB)

    def _files_mb(self, tasks_folder: Path) -> float:
        """What is in the folder of the attempt, and the artifacts that it keeps, each counted once."""
        task = self.lease.task
        work = work_folder(tasks_folder, task.task_id, task.attempt)
        total = linux.folder_size(work) + sum(self._artifacts.values())
        with contextlib.suppress(OSError), os.scandir(outgoing_folder(work)) as entries:
            for entry in entries:  # each is removed when it is kept
                with contextlib.suppress(OSError):
                    size = entry.stat(follow_symlinks=False).st_size
                    total -= min(size, self._artifacts.get(entry.name, 0))
        return total / _MB

    def _too_many_files(self, used_mb: float) -> TaskError | None:
        most = self.lease.task.resources.scratch_mb
        if most is None or used_mb <= most:
            return None
        message = f"The task used {used_mb:.0f} MB of scratch space and artifacts; its limit is {most} MB."
        return TaskError("scratch_exceeded", message)

    def _overtime(self) -> TaskError:
        limit_s = self.lease.task.resources.max_runtime_s
        return TaskError(TIMED_OUT, f"The task ran longer than its limit of {limit_s:g} s.")

    # -- how it ended

    def end_span(self, outcome: Outcome) -> None:
        if self.span is not None:
            error = None if isinstance(outcome, Succeeded | HandedBack) else outcome.error.type
            self.span.end(LEASE_LOST if self.is_lost else kind_of(outcome), error)

    @property
    def spoils_its_runner(self) -> bool:
        """Whether its runner may have no other task: it must be fresh, or had to be limited or stopped."""
        isolated = self.lease.task.isolation == "fresh"
        return isolated or self.watched or self.stopping is not None

    def outcome_of(self, last_word: Done) -> Outcome:
        """What a runner's last word amounts to, with what is known here."""
        metrics, error = last_word.metrics, last_word.error
        if self.stopping is not None and self.stopping.type not in (CANCELLED, HANDED_BACK):
            kind = TimedOut if self.stopping.type == TIMED_OUT else Failed
            return kind(self.stopping, metrics)
        if error is None:
            return Succeeded(last_word.result_json, metrics)
        if last_word.kind == "cancelled":
            return Cancelled(error, metrics)
        return Failed(error, metrics, last_word.retryable)

    def outcome_of_death(self, code: int, now: int) -> Outcome:
        """What it amounts to that the runner ended without a last word."""
        if self.stopping is None and self.deadline is not None and now >= self.deadline:
            return TimedOut(self._overtime())
        if self.stopping is None and self.may_be_ended and code == -signal.SIGTERM:
            return HandedBack("The task's process was ended together with its supervisor.")
        if self.stopping is None:
            how = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            )
            return Failed(TaskError("worker_lost", f"The process that ran the task {how}."))
        if self.stopping.type == TIMED_OUT:
            return TimedOut(self.stopping)
        if self.stopping.type == CANCELLED:
            return Cancelled(self.stopping)
        if self.stopping.type == HANDED_BACK:
            return HandedBack(self.stopping.message)
        return Failed(self.stopping)
