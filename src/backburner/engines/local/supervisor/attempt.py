"""One leased attempt in the supervisor: its log, its limits, its reports and its outcome."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....core import json_text
from ....core.files import outgoing_folder, work_folder
from ....core.logs import OPERATOR_STREAM, UNFINISHED
from ....core.reports import (
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
from ....core.task import Action, Artifact, LogLine, Progress, TaskError
from ....observability.logging import about
from ....observability.tracing import AttemptSpan, Traced, begin
from ....store.protocol import Lease
from ....tools.execution import Assignment, choose_cpus
from ..processes import linux
from ..processes.messages import LONGEST_LINE, LONGEST_RECORD, RECORD, Done

#: A task that waits for an answer keeps its worker this long, since many answers come at once. Then it is
#: parked, and the worker takes other tasks.
ASK_GRACE_S = 5.0
#: Why an attempt is being stopped: types of errors.
TIMED_OUT = "timed_out"
CANCELLED = "cancelled"
HANDED_BACK = "handed_back"
LEASE_LOST = "lease_lost"

_CHECK_EVERY_MS = 250
#: A folder of very many files takes long to measure, and other tasks must not wait for it.
_SHARE_FOR_MEASURING = 0.05
_MB = 1 << 20

#: What happened to an attempt, in order, for `Store.report_all`.
Report = tuple[Lease, list[Change]]


#: How often a line that overwrites itself is shown.
_UPDATE_EVERY_MS = 1000
_LINE_COST = 64  # in a store, an empty line is not free
_RECORD_STREAM = re.compile(rf"log|{OPERATOR_STREAM}|message[a-z.]{{0,20}}")
_LEVELS = {"stdout": "info", "stderr": "warning"}


class TaskLog:
    """Turns one attempt's output into numbered log lines, up to a limit of bytes."""

    def __init__(self, last_seq: int, limit_bytes: int) -> None:
        self._seq = last_seq
        self._left = limit_bytes
        self._partial = {"stdout": b"", "stderr": b""}
        self._shown: dict[str, bytes] = {}
        self._unshown: dict[str, int] = {}  # streams whose unfinished line has changed, and when
        self._show_at = 0
        self._lines: list[LogLine] = []

    def feed(self, stream: str, data: bytes, now: int) -> None:
        """Add raw output; a line is complete at its newline, or when it is too long to wait for one."""
        *lines, rest = (self._partial[stream] + data).split(b"\n")
        begun = b""
        for line in lines:
            text, mark, record = line.partition(RECORD)
            if mark and self._add_record(record, now):
                begun += text  # a record came into the middle of a line
            else:
                self._add_line(stream, begun + line, now)
                begun = b""
        rest = begun + rest
        if b"\r" in rest and RECORD not in rest:
            rest = self._overwritten(stream, rest, now)
        if len(rest) > (LONGEST_RECORD if RECORD in rest else LONGEST_LINE):
            self._add_line(stream, rest, now)
            rest = b""
        self._partial[stream] = rest

    def _overwritten(self, stream: str, line: bytes, now: int) -> bytes:
        """Return what is left of a line that overwrites itself, as progress bars do."""
        shown, is_over = _visible(line), not line.rpartition(b"\r")[2].strip()
        if shown != self._shown.get(stream):
            self._unshown[stream] = now
        return b"\r" + shown + (b"\r" if is_over else b"")

    @property
    def show_at(self) -> int | None:
        """Return the time at which `show_unfinished` is due; None if it has nothing to show."""
        return self._show_at if self._unshown else None

    def show_unfinished(self, now_steady: int) -> None:
        """Add lines that overwrite themselves, as they are now, if it is time to."""
        if not self._unshown or now_steady < self._show_at:
            return
        self._show_at = now_steady + _UPDATE_EVERY_MS
        for stream, written_at in self._unshown.items():
            if shown := _visible(self._partial[stream]):
                self._shown[stream] = shown
                self._add(stream, shown, written_at, UNFINISHED)
        self._unshown.clear()

    def _add_line(self, stream: str, line: bytes, now: int) -> None:
        self._unshown.pop(stream, None)
        self._shown.pop(stream, None)
        self._add(stream, _visible(line), now)

    def _add(self, stream: str, line: bytes, now: int, end: str = "") -> None:
        for start in range(0, len(line) or 1, LONGEST_LINE):
            part = line[start : start + LONGEST_LINE]
            self.add(stream, _LEVELS[stream], part.decode("utf-8", "replace") + end, now)

    def _add_record(self, text: bytes, now: int) -> bool:
        try:
            record = json.loads(text)
            ts = min(max(0, int(record["ts"])), now)
            self.add(_stream_of(record), str(record["level"]), str(record["message"]), ts)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return False  # the tool wrote this; it only looks like a record
        return True

    def add(self, stream: str, level: str, message: str, now: int) -> None:
        if self._left <= 0:
            return
        self._left -= len(message) + _LINE_COST
        if self._left <= 0:
            stream, level, message = "backburner", "warning", "The log is full; what follows is dropped."
        self._seq += 1
        self._lines.append(
            LogLine(self._seq, now, stream, json_text.storable(level), json_text.storable(message))
        )

    def end(self, now: int) -> None:
        """Add what has no newline yet."""
        for stream, rest in self._partial.items():
            if rest:
                self.feed(stream, b"\n", now)

    def take(self) -> tuple[LogLine, ...]:
        """Return the lines since the last call."""
        lines, self._lines = tuple(self._lines), []
        return lines


def _visible(line: bytes) -> bytes:
    """Return what a terminal shows of a line: the text after its last carriage return."""
    if b"\r" not in line:
        return line
    return next((part for part in reversed(line.split(b"\r")) if part.strip()), b"")


def _stream_of(record: dict[str, Any]) -> str:
    """Return the stream of a record; no tool may claim the streams of printed output, or ours."""
    stream = record.get("stream", "log")
    return stream if isinstance(stream, str) and _RECORD_STREAM.fullmatch(stream) else "log"


@dataclass(frozen=True, slots=True)
class PendingQuestions:
    """Questions that a runner waits on. At `until`, the answers in `otherwise` are given."""

    keys: list[str]
    until: int | None = None
    otherwise: Mapping[str, tuple[Action, Any]] = field(default_factory=dict)


@dataclass(eq=False)
class LeasedAttempt:
    """An attempt from its lease to its end. Times are of the steady clock, except `timeout_at`.

    `false_starts` counts runners that ended before they got it. `stopping` is why it is being stopped, and
    `kill_at` when it is killed. `asked` maps request numbers to questions that its runner waits on since
    `waits_since`; with `has_answers` it only lacks a free worker. Once it is `over`, nothing more is
    written. With `supervisor_stops`, its process may be ended together with the supervisor's.
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
    supervisor_stops: bool = False
    asked: dict[int, PendingQuestions] = field(default_factory=dict)
    waits_since: int = 0
    has_answers: bool = False
    over: bool = False
    span: AttemptSpan | None = None
    _measure_again_at: int = 0
    _progress: Progress | None = None
    _artifacts: dict[str, int] = field(default_factory=dict)
    _changes: list[Change] = field(default_factory=list)

    @property
    def in_logs(self) -> dict[str, Any]:
        return about(self.lease.task_id, self.lease.attempt)

    @property
    def sent(self) -> bool:
        """Return whether the attempt was sent to a runner."""
        return self.sent_at is not None

    def begin(self, now: int, wall_now: int, runner_pid: int | None) -> None:
        """Note that a runner gets it now; its time limit starts."""
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

    def assignment(self, tasks_folder: Path, worker_number: int, *, last: bool) -> Assignment:
        """Return the message for its runner; `last` when the runner gets no other task."""
        resources = self.lease.task.resources
        return Assignment.of(
            self.lease,
            tasks_folder,
            timeout_at=self.timeout_at,
            resources=resources,
            cpus=choose_cpus(resources.cpu, worker_number),
            last=last,
            span=self.span,
        )

    # -- reports

    def progressed(self, progress: Progress) -> None:
        """Keep the latest progress for the next report."""
        self._progress = progress

    def report(self, *changes: Change) -> Report:
        """Return a report with all unwritten changes, then these."""
        self._collect()
        collected, self._changes = self._changes, []
        return self.lease, [*collected, *changes]

    def unwritten(self) -> Report | None:
        """Return a report with all unwritten changes; None when there are none."""
        self._collect()
        return self.report() if self._changes else None

    def _collect(self) -> None:
        if lines := self.log.take():
            self._changes.append(Logged(lines))
        if self._progress is not None:
            self._changes.append(Progressed(self._progress))
            self._progress = None

    # -- limits

    def stop(self, error: TaskError, kill_at: int) -> None:
        """Stop it, at the earliest time given. The first reason stays, unless the lease is lost."""
        if self.stopping is None or error.type == LEASE_LOST:
            self.stopping = error
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)

    @property
    def is_lost(self) -> bool:
        """Return whether the lease is lost, so that results are discarded."""
        return self.stopping is not None and self.stopping.type == LEASE_LOST

    @property
    def watched(self) -> bool:
        """Return whether the task has limits that the supervisor enforces by measuring."""
        resources = self.lease.task.resources
        return resources.memory_mb is not None or resources.scratch_mb is not None

    def check_again_at(self, now: int) -> int | None:
        """Return when to check it next; None when there is no need."""
        times = [self.deadline if self.kill_at is None else self.kill_at, self.log.show_at]
        if self.watched:
            times.append(now + _CHECK_EVERY_MS)
        return min((at for at in times if at is not None), default=None)

    def limit_exceeded(self, runner: int, tasks_folder: Path, now: int) -> TaskError | None:
        """Return the error for a limit that the attempt, run by this process, exceeds; None within all."""
        resources = self.lease.task.resources
        if self.deadline is not None and now >= self.deadline:
            return self._overtime()
        is_measured = resources.scratch_mb is not None and now >= self._measure_again_at
        if resources.memory_mb is None and not is_measured:
            return None
        began = time.perf_counter()
        use = linux.family_use(runner, self.files_before)
        if resources.memory_mb is not None:
            used = use.memory_mb - self.memory_before_mb
            if used > resources.memory_mb:
                message = f"The task used {used:.0f} MB of memory; its limit is {resources.memory_mb} MB."
                return TaskError("memory_exceeded", message)
        if is_measured:
            used = self._files_mb(tasks_folder) + use.unlinked_mb
            self._measure_again_at = now + int((time.perf_counter() - began) * 1000 / _SHARE_FOR_MEASURING)
            return self._too_many_files(used)
        return None

    def add_artifact(self, artifact: Artifact) -> TaskError | None:
        """Count an artifact to be stored; return the error when that exceeds the limit."""
        self._artifacts[artifact.artifact_id] = artifact.size_bytes
        return self._too_many_files(sum(self._artifacts.values()) / _MB)

    def _files_mb(self, tasks_folder: Path) -> float:
        """Return the size of the attempt's folder and its artifacts, each counted once."""
        task = self.lease.task
        work = work_folder(tasks_folder, task.task_id, task.attempt)
        total = linux.folder_size(work) + sum(self._artifacts.values())
        with contextlib.suppress(OSError), os.scandir(outgoing_folder(work)) as entries:
            for entry in entries:  # each is removed once it is stored
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

    # -- outcome

    def end_span(self, outcome: Outcome) -> None:
        if self.span is not None:
            error = None if isinstance(outcome, Succeeded | HandedBack) else outcome.error.type
            self.span.end(LEASE_LOST if self.is_lost else kind_of(outcome), error)

    @property
    def retires_runner(self) -> bool:
        """Return whether the runner ends with this task, which is isolated, measured or stopped."""
        isolated = self.lease.task.isolation == "fresh"
        return isolated or self.watched or self.stopping is not None

    def outcome_of(self, message: Done) -> Outcome:
        """Return the outcome for a runner's final message."""
        metrics, error = message.metrics, message.error
        if self.stopping is not None and self.stopping.type not in (CANCELLED, HANDED_BACK):
            kind = TimedOut if self.stopping.type == TIMED_OUT else Failed
            return kind(self.stopping, metrics)
        if message.result_json is not None:
            return Succeeded(message.result_json, metrics)
        assert error is not None, "a message has a result or an error"
        if message.kind == "cancelled":
            return Cancelled(error, metrics)
        return Failed(error, metrics, message.retryable)

    def outcome_of_death(self, code: int, now: int) -> Outcome:
        """Return the outcome for a runner that ended without a final message."""
        if self.stopping is None and self.deadline is not None and now >= self.deadline:
            return TimedOut(self._overtime())
        if self.stopping is None and self.supervisor_stops and code == -signal.SIGTERM:
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
